package kubeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

func (c *Client) nodePlace() place { return place{c.heartbeat, "nodes", "", c.cfg.Node} }

// Node is this node as last seen, nil while it is not known. It is shared and read-only.
func (c *Client) Node() *v1.Node {
	n, ok := c.node.one()
	if !ok {
		return nil
	}
	return n
}

// Get reads this node from the server.
func (c *Client) Get(ctx context.Context) (*v1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Heartbeat)
	defer cancel()
	n := new(v1.Node)
	if err := c.nodePlace().get(ctx, n); err != nil {
		return nil, err
	}
	n.ManagedFields = nil
	return n, nil
}

// Register makes the Node object and returns it as it is then; one that is there already is returned as it is. A server that
// forbids making a node may still have one.
func (c *Client) Register(ctx context.Context, node *v1.Node) (*v1.Node, error) {
	if node.Name != c.cfg.Node {
		return nil, fmt.Errorf("register node %s: this client is for node %s", node.Name, c.cfg.Node)
	}
	timed, cancel := context.WithTimeout(ctx, c.cfg.Heartbeat)
	defer cancel()
	made := new(v1.Node)
	err := c.nodePlace().create(timed, node, made)
	if apierrors.IsAlreadyExists(err) || apierrors.IsForbidden(err) {
		if is, getErr := c.Get(ctx); getErr == nil {
			return is, nil
		} else if apierrors.IsAlreadyExists(err) {
			err = getErr
		}
	}
	if err != nil {
		return nil, err
	}
	made.ManagedFields = nil
	return made, nil
}

// UpdateNode writes the difference between two states of this node: status, labels and annotations. The rest of the spec
// stays as it is on the server. A node that is gone is runtime.ErrNotFound.
func (c *Client) UpdateNode(ctx context.Context, from, to *v1.Node) error {
	patch, err := nodePatch(from, to)
	if err != nil || patch == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Heartbeat)
	defer cancel()
	return c.nodePlace().patch(ctx, patch, new(v1.Node), "status")
}

// told is what UpdateNode writes of a node.
func told(n *v1.Node) v1.Node {
	return v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: n.Labels, Annotations: n.Annotations}, Status: n.Status}
}

// nodePatch is the difference, nil for none. Addresses are merged by type as the API declares them, which loses one of two of
// the same type: a changed list is sent whole.
func nodePatch(from, to *v1.Node) ([]byte, error) {
	was, err := json.Marshal(told(from))
	if err != nil {
		return nil, err
	}
	is, err := json.Marshal(told(to))
	if err != nil {
		return nil, err
	}
	diff, err := strategicpatch.CreateTwoWayMergePatch(was, is, v1.Node{})
	if err != nil || string(diff) == "{}" {
		return nil, err
	}
	if len(from.Status.Addresses) == 0 || slices.Equal(from.Status.Addresses, to.Status.Addresses) {
		return diff, nil
	}
	var m map[string]any
	if err := json.Unmarshal(diff, &m); err != nil {
		return nil, err
	}
	st, ok := m["status"].(map[string]any)
	if !ok {
		return diff, nil
	}
	list := make([]any, 0, len(to.Status.Addresses)+1)
	for _, a := range to.Status.Addresses {
		list = append(list, a)
	}
	st["addresses"] = append(list, map[string]string{"$patch": "replace"})
	delete(st, "$setElementOrder/addresses")
	return json.Marshal(m)
}
