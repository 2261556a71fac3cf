// Command kubernetes holds the programs of Kubernetes in one binary, so that they share one link step, one file on
// disk and one page cache. It runs the program whose name it is called by, or else the one that the first argument
// names.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs makes each command only when it runs: making a command registers its flags and metrics.
var programs = map[string]func() int{
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-proxy":              func() int { return cli.Run(proxy.NewProxyCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func() int { return cli.Run(newKubelet()) },
	"kubectl":                 runKubectl,
}

// newKubelet makes the command of the kubelet. Before 1.34, the function of Kubernetes takes no context.
func newKubelet() *cobra.Command {
	switch create := any(kubelet.NewKubeletCommand).(type) {
	case func(context.Context) *cobra.Command:
		return create(context.Background())
	case func() *cobra.Command:
		return create()
	default:
		panic(fmt.Sprintf("kubelet.NewKubeletCommand is a %T, which this program does not know", create))
	}
}

// runKubectl reports errors the way the released kubectl does: without usage text, with its exit codes.
func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}

func main() {
	name := filepath.Base(os.Args[0])
	run, known := programs[name]
	if !known && len(os.Args) > 1 {
		// Drop our own name, so that the program sees itself as argument zero.
		os.Args = os.Args[1:]
		name = filepath.Base(os.Args[0])
		run, known = programs[name]
	}
	if !known {
		names := make([]string, 0, len(programs))
		for n := range programs {
			names = append(names, n)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "kubernetes: no program %q; call it by one of these names, or give one as the first argument: %s\n",
			name, strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(run())
}
