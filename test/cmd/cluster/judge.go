package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubeletkit/kubeletkit/test/bed"
	"github.com/kubeletkit/kubeletkit/test/cluster"
	"github.com/kubeletkit/kubeletkit/test/conformance"
	"github.com/kubeletkit/kubeletkit/test/member"
)

// judge brings a cluster up, runs specs on it and adds their rows to a file.
func judge(ctx context.Context, flags *flag.FlagSet, args []string) error {
	n := nodeFlags(flags)
	focus := flags.String("focus", `\[Conformance\]`, "specs to run")
	skip := flags.String("skip", `\[Serial\]|\[Disruptive\]`, "specs not to run")
	procs := flags.Int("procs", 6, "specs at once")
	suite := flags.String("suite", "e2e", "e2e, or node for the specs that only e2e_node.test has")
	out := flags.String("out", "", "file that the rows are merged into; empty: none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *suite != "e2e" && *suite != "node" {
		return fmt.Errorf("-suite %q: there are e2e and node", *suite)
	}
	c, a, err := n.open()
	if err != nil {
		return err
	}
	rows, err := judgements(ctx, c, a, *n.program, *suite == "node", conformance.Config{Focus: *focus, Skip: *skip, Procs: *procs})
	if err != nil {
		return err
	}
	fmt.Print(conformance.Failures(rows), "\n", conformance.Table(conformance.Entry{Name: string(a), Rows: rows}))
	if *out == "" {
		return nil
	}
	return keep(*out, rows)
}

// keep merges rows into a file. What was found before an agent could join says nothing about it afterwards.
func keep(file string, rows []conformance.Row) error {
	older, err := conformance.Read(file)
	if err != nil {
		return err
	}
	for _, run := range [][]conformance.Row{older, rows} {
		if len(run) > 0 && run[0].Result == conformance.CannotJoin {
			older = nil
		}
	}
	if err := conformance.Write(file, conformance.Merge(older, rows)); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "cluster: the rows are in %s\n", file)
	return nil
}

// judgements are the rows of a run; for an agent that cannot join, one row that says so.
func judgements(ctx context.Context, c *cluster.Cluster, a cluster.Agent, program string, onNode bool, cfg conformance.Config) ([]conformance.Row, error) {
	err := cluster.CanJoin(ctx, a, program)
	if errors.Is(err, cluster.ErrCannotJoin) {
		return []conformance.Row{{Result: conformance.CannotJoin, Name: string(a), Failure: err.Error()}}, nil
	}
	if err != nil {
		return nil, err
	}
	programs := cluster.JudgePrograms()
	if onNode {
		programs = []string{"ginkgo", "e2e_node.test"}
	}
	if err := cluster.EnsurePrograms(ctx, os.Stderr, programs...); err != nil {
		return nil, err
	}
	if err := c.Up(ctx, a); err != nil {
		return nil, err
	}
	if onNode {
		if cfg.Node, err = nodeSuite(ctx, c, a); err != nil {
			return nil, err
		}
		local, err := member.ListenProxy("127.0.0.1:10255", c.ReadOnly()) // where the specs ask
		if err != nil {
			return nil, err
		}
		defer local.Close()
	}
	cfg.Bin, cfg.Kubeconfig = bed.BinDir(), c.Kubeconfig()
	cfg.Dir = filepath.Join(c.Dir(), "conformance")
	fmt.Fprintf(os.Stderr, "cluster: running specs; follow them in %s\n", filepath.Join(cfg.Dir, "log"))
	return conformance.Run(ctx, cfg)
}

// nodeSuite is the node of a cluster that is up, and makes a token of an administrator.
func nodeSuite(ctx context.Context, c *cluster.Cluster, a cluster.Agent) (*conformance.NodeSuite, error) {
	const account = "kube-system:default"
	_, err := c.Kubectl(ctx, "create", "clusterrolebinding", "judge", "--clusterrole=cluster-admin", "--serviceaccount="+account)
	if err != nil && !strings.Contains(err.Error(), "already exists") {
		return nil, err
	}
	if _, err := c.Kubectl(ctx, "wait", "--for=create", "serviceaccount/default", "--namespace=kube-system", "--timeout=60s"); err != nil {
		return nil, err
	}
	token, err := c.Kubectl(ctx, "create", "token", "default", "--namespace=kube-system", "--duration=12h")
	return &conformance.NodeSuite{
		Host: "https://" + c.APIServer(), Token: strings.TrimSpace(token), Name: cluster.NodeName, Runtime: c.Endpoint(),
		PIDFile: c.Path("pids", string(a)), Log: c.AgentLog(a),
	}, err
}

// report compares two files of rows, and keeps the table in a document.
func report(_ context.Context, flags *flag.FlagSet, args []string) error {
	a := flags.String("a", "test/conformance/baseline-kubelet.tsv", "rows of the measure")
	b := flags.String("b", "", "rows of the other agent")
	document := flags.String("document", "", "file to keep the table in")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var entries []conformance.Entry
	for _, file := range []string{*a, *b} {
		if file == "" {
			continue
		}
		rows, err := conformance.Read(file)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(strings.TrimSuffix(filepath.Base(file), ".tsv"), "baseline-")
		entries = append(entries, conformance.Entry{Name: name, Rows: rows})
	}
	table := conformance.Table(entries...)
	fmt.Println(table)
	if len(entries) == 2 {
		fmt.Print(conformance.Compare(entries[0], entries[1]))
	} else {
		fmt.Print(conformance.Failures(entries[0].Rows))
	}
	if *document == "" {
		return nil
	}
	return conformance.UpdateDocument(*document, table)
}
