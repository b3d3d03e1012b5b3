package cluster

// objects are what the cluster has from its first minute: DNS behind a Service, and the rights of those who
// are no administrators.
func (c *Cluster) objects() object {
	return object{
		"apiVersion": "v1",
		"kind":       "List",
		"items": []object{
			c.dnsService(), c.dnsEndpoints(),
			dnsRole(), binding("kubeletkit:dns", "kubeletkit:dns", "system:coredns"),
			binding("kubeletkit:kubelet-api", "system:kubelet-api-admin", "kube-apiserver-kubelet-client"),
		},
	}
}

func (c *Cluster) dnsService() object {
	return object{
		"apiVersion": "v1",
		"kind":       "Service",
		"metadata": object{
			"name": "kube-dns", "namespace": "kube-system",
			"labels": object{"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"},
		},
		"spec": object{"clusterIP": dnsServiceIP, "ports": []object{
			{"name": "dns", "port": 53, "protocol": "UDP"},
			{"name": "dns-tcp", "port": 53, "protocol": "TCP"},
		}},
	}
}

// dnsEndpoints leads the Service to the CoreDNS on this machine.
func (c *Cluster) dnsEndpoints() object {
	return object{
		"apiVersion": "discovery.k8s.io/v1",
		"kind":       "EndpointSlice",
		"metadata": object{
			"name": "kube-dns-host", "namespace": "kube-system",
			"labels": object{"kubernetes.io/service-name": "kube-dns"},
		},
		"addressType": "IPv4",
		"endpoints":   []object{{"addresses": []string{c.node.String()}, "conditions": object{"ready": true}}},
		"ports": []object{
			{"name": "dns", "port": dnsPortNumber, "protocol": "UDP"},
			{"name": "dns-tcp", "port": dnsPortNumber, "protocol": "TCP"},
		},
	}
}

func dnsRole() object {
	watch := []string{"list", "watch"}
	return object{
		"apiVersion": "rbac.authorization.k8s.io/v1",
		"kind":       "ClusterRole",
		"metadata":   object{"name": "kubeletkit:dns"},
		"rules": []object{
			{"apiGroups": []string{""}, "resources": []string{"services", "pods", "namespaces"}, "verbs": watch},
			{"apiGroups": []string{"discovery.k8s.io"}, "resources": []string{"endpointslices"}, "verbs": watch},
		},
	}
}

func binding(name, role, user string) object {
	const group = "rbac.authorization.k8s.io"
	return object{
		"apiVersion": group + "/v1",
		"kind":       "ClusterRoleBinding",
		"metadata":   object{"name": name},
		"roleRef":    object{"apiGroup": group, "kind": "ClusterRole", "name": role},
		"subjects":   []object{{"apiGroup": group, "kind": "User", "name": user}},
	}
}
