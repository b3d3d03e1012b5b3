// Package kubeapi compares what the agent does itself towards an API server with the library it stands for, on the same
// inputs: client-go's certificate manager, and apiserver's delegating authenticator and authorizer, which the kubelet uses.
package kubeapi
