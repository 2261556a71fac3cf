package verdict

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

// Outcome is the end of one spec.
type Outcome struct {
	Spec    string
	State   types.SpecState
	Message string
	Took    time.Duration
}

// Outcomes returns the outcomes of the specs. A failure beside the specs, such as before the first one, is one of them. A spec
// that the flags do not select has no outcome: it is skipped without a message.
func Outcomes(report types.Report) []Outcome {
	var all []Outcome
	for _, spec := range report.SpecReports {
		name := spec.FullText()
		if spec.LeafNodeType != types.NodeTypeIt {
			if !spec.Failed() {
				continue
			}
			name = spec.LeafNodeType.String() + " " + name
		} else if spec.State.Is(types.SpecStateSkipped) && spec.Failure.Message == "" {
			continue
		}
		all = append(all, Outcome{Spec: name, State: spec.State, Message: spec.Failure.Message, Took: spec.RunTime})
	}
	return all
}

// Verdict says which specs ended as the rules say.
type Verdict struct {
	lines []string
	// surprises are the reasons why the verdict is bad.
	surprises []string
	// apart counts the specs that the definition of the driver rules out, by the reason.
	apart                   map[string]int
	passed, failed, skipped int
	listed                  int
}

// Unfinished is the verdict on specs that did not end.
func Unfinished() *Verdict { return &Verdict{surprises: []string{"the specs did not end"}} }

// Good says whether all specs ended as the rules say.
func (v *Verdict) Good() bool { return len(v.surprises) == 0 }

// Judge compares the outcomes with the rules. If these are the outcomes of all specs, a rule that no spec needs is a surprise,
// too.
func Judge(rules Rules, all []Outcome, whole bool) *Verdict {
	v := &Verdict{apart: map[string]int{}}
	used := map[*Rule]bool{}
	for _, outcome := range all {
		rule := rules.of(outcome.Spec)
		switch {
		case outcome.State.Is(types.SpecStatePassed):
			v.ended(outcome, rule)
		case outcome.State.Is(types.SpecStateSkipped):
			if !rule.leavesOut() {
				rule = rules.unsupported(outcome.Message)
			}
			v.did(outcome, rule)
		case outcome.State.Is(types.SpecStateFailureStates):
			v.broke(outcome, rule)
		default:
			v.surprise("%s: %s", outcome.State, outcome.Spec)
		}
		if rule != nil {
			used[rule] = true
		}
	}
	for _, rule := range rules {
		if whole && !used[rule] {
			v.surprise("no spec needs the rule `%s%s`: remove it", rule.Spec, rule.Message)
		}
	}
	if v.passed == 0 {
		v.surprise("no spec passed")
	}
	return v
}

// ended notes a spec that passed.
func (v *Verdict) ended(outcome Outcome, rule *Rule) {
	v.passed++
	v.line("passed", outcome, "")
	if rule != nil && rule.Outcome == mustFail {
		v.surprise("passed, and a rule says that it fails: %s", outcome.Spec)
	}
}

// broke notes a spec that failed.
func (v *Verdict) broke(outcome Outcome, rule *Rule) {
	v.failed++
	if rule != nil && rule.Outcome == mustFail {
		v.listed++
		v.line("failed as listed", outcome, rule.Reason)
		return
	}
	v.line("FAILED", outcome, "")
	first, _, _ := strings.Cut(strings.TrimSpace(outcome.Message), "\n")
	v.surprise("failed: %s: %s", outcome.Spec, first)
}

// did notes a spec that did not run. Its rule is nil if there is none.
func (v *Verdict) did(outcome Outcome, rule *Rule) {
	switch {
	case rule == nil:
		v.line("SKIPPED", outcome, outcome.Message)
		v.surprise("skipped itself, and no rule has its message: %s: %s", outcome.Spec, outcome.Message)
	case rule.Outcome == unsupported:
		v.apart[rule.Reason]++
	default:
		v.skipped++
		v.line("skipped", outcome, rule.Reason)
	}
}

func (v *Verdict) line(word string, outcome Outcome, reason string) {
	line := fmt.Sprintf("%-16s %4.0f s  %s", word, outcome.Took.Seconds(), outcome.Spec)
	if reason != "" {
		line += "\n" + strings.Repeat(" ", 24) + reason
	}
	v.lines = append(v.lines, line)
}

func (v *Verdict) surprise(format string, words ...any) {
	v.surprises = append(v.surprises, fmt.Sprintf(format, words...))
}

// String has a line for each spec, and the sum as the last line.
func (v *Verdict) String() string {
	lines := append([]string{""}, v.lines...)
	reasons := make([]string, 0, len(v.apart))
	for reason := range v.apart {
		reasons = append(reasons, reason)
	}
	sort.Strings(reasons)
	for _, reason := range reasons {
		lines = append(lines, fmt.Sprintf("not for these drivers: %d specs: %s", v.apart[reason], reason))
	}
	for _, surprise := range v.surprises {
		lines = append(lines, "e2e-suite: error: "+surprise)
	}
	as := ""
	if v.failed > 0 {
		as = fmt.Sprintf(" (%d of them as listed)", v.listed)
	}
	lines = append(lines, fmt.Sprintf("specs %d: %d passed, %d failed%s, %d skipped for a reason",
		v.passed+v.failed+v.skipped, v.passed, v.failed, as, v.skipped))
	return strings.Join(lines, "\n") + "\n"
}
