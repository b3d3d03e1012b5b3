module github.com/kubeletkit/kubeletkit/test

go 1.26.0

replace github.com/kubeletkit/kubeletkit => ../
