// Command e2e-suite runs the storage specs of Kubernetes' own e2e suite against a cluster, and judges the outcomes by a list
// of rules. Its flags are those of Kubernetes' e2e.test, and:
//
//	-rules FILE      the rules (see verdict/rules.go)
//	-specs REGEXP    run only the specs whose names match
//	-verdict FILE    where to write the outcomes of the specs
//	-images          print the names of the images that pods of the specs use, one a line, and end
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"flex-provisioner/testing/e2e-suite/verdict"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	_ "k8s.io/kubernetes/test/e2e/feature"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	e2enode "k8s.io/kubernetes/test/e2e/framework/node"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	// The flag -storage.testdriver defines the specs of a driver.
	_ "k8s.io/kubernetes/test/e2e/storage/external"
	"k8s.io/kubernetes/test/utils/image"
)

var (
	rulesFile   = flag.String("rules", "", "the file of rules")
	specs       = flag.String("specs", "", "run only the specs whose names match this regular expression")
	verdictFile = flag.String("verdict", "/dev/stdout", "the file for the outcomes of the specs")
	images      = flag.Bool("images", false, "print the names of the images, and end")
)

// rules has the rules of rulesFile.
var rules verdict.Rules

var _ = ginkgo.BeforeSuite(func(ctx context.Context) {
	client, err := framework.LoadClientset()
	framework.ExpectNoError(err, "making a client of the cluster")
	framework.ExpectNoError(e2enode.WaitForAllNodesSchedulable(ctx, client, framework.NewTimeoutContext().NodeSchedulable))
	nodes, err := e2enode.GetReadySchedulableNodes(ctx, client)
	framework.ExpectNoError(err, "listing the nodes")
	framework.TestContext.CloudConfig.NumNodes = len(nodes.Items)
	framework.TestContext.IPFamily = "ipv4"
})

// A spec that is left out makes nothing in the cluster but its namespace, because this node runs right after that of its
// framework. A node outside of all containers would not do: the framework previews the specs, and Ginkgo drops such nodes then.
func init() {
	framework.NewFrameworkExtensions = append(framework.NewFrameworkExtensions, func(*framework.Framework) {
		ginkgo.BeforeEach(func() {
			if reason := rules.LeftOut(ginkgo.CurrentSpecReport().FullText()); reason != "" {
				ginkgo.Skip(reason)
			}
		})
	})
}

// result is what RunSpecs tells of a failure in place of a Go test. The rules judge the outcomes, so a failed spec alone is no
// failure of the program.
type result struct{}

func (result) Fail() {}

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	if *images {
		for name, id := range map[string]image.ImageID{
			"agnhost": image.Agnhost, "busybox": image.BusyBox, "glibc": image.GlibcDnsTesting, "nginx": image.Nginx,
		} {
			fmt.Println(name, image.GetE2EImage(id))
		}
		return
	}
	text, err := os.ReadFile(*rulesFile)
	if err == nil {
		rules, err = verdict.Parse(text)
	}
	if err != nil {
		fail("-rules", *rulesFile, err)
	}
	framework.AfterReadingAllFlags(&framework.TestContext)
	gomega.RegisterFailHandler(framework.Fail)
	ended := run()
	if err := os.WriteFile(*verdictFile, []byte(ended.String()), 0o644); err != nil {
		fail("-verdict", *verdictFile, err)
	}
	if !ended.Good() {
		os.Exit(1)
	}
}

// fail ends the program because of a file.
func fail(what, file string, err error) {
	fmt.Fprintf(os.Stderr, "e2e-suite: error: %s %s: %v\n", what, file, err)
	os.Exit(2)
}

// run runs the specs and judges their outcomes. Only if all specs run, all rules are needed.
func run() *verdict.Verdict {
	suite, reporter := framework.CreateGinkgoConfig()
	// Kubernetes' packages define other specs, too. By default they leave out specs of features such as snapshots.
	suite.FocusStrings = []string{"External Storage.*" + *specs}
	suite.SkipStrings = nil
	ended := verdict.Unfinished()
	ginkgo.ReportAfterSuite("verdict", func(report ginkgo.Report) {
		ended = verdict.Judge(rules, verdict.Outcomes(report), *specs == "")
	})
	ginkgo.RunSpecs(result{}, "the storage specs of Kubernetes", suite, reporter)
	return ended
}
