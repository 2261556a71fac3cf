// Package verdict judges the outcomes of specs by a list of rules.
package verdict

import (
	"errors"
	"fmt"
	"regexp"

	"sigs.k8s.io/yaml"
)

// The outcomes that a rule may have.
const (
	// run: the spec must pass. Such a rule goes before a wider one.
	mustPass = "run"
	// skip: the spec is not run.
	leftOut = "skip"
	// fail: the spec is run and must fail.
	mustFail = "fail"
	// unsupported: the spec is not for this driver. It is not run, or it skips itself with this message. It does not count.
	unsupported = "unsupported"
)

// Rule says what happens to the specs whose whole name matches. Of the rules of a spec, the first counts.
type Rule struct {
	// Spec is a regular expression for names of specs.
	Spec string `json:"spec,omitempty"`
	// Message is one for the messages of specs that skip themselves. Such a rule has no Spec, and its outcome is `unsupported`.
	Message string `json:"message,omitempty"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`

	expression *regexp.Regexp
}

// Rules are in the order of the file.
type Rules []*Rule

// LeftOut returns the reason why a spec is not run, or nothing.
func (r Rules) LeftOut(spec string) string {
	if rule := r.of(spec); rule.leavesOut() {
		return rule.Reason
	}
	return ""
}

// leavesOut says whether a spec of this rule is not run.
func (rule *Rule) leavesOut() bool {
	return rule != nil && (rule.Outcome == leftOut || rule.Outcome == unsupported)
}

// of returns the first rule of a spec, or nil.
func (r Rules) of(spec string) *Rule {
	for _, rule := range r {
		if rule.Spec != "" && rule.expression.MatchString(spec) {
			return rule
		}
	}
	return nil
}

// unsupported returns the first rule of the message of a spec that skipped itself, or nil.
func (r Rules) unsupported(message string) *Rule {
	for _, rule := range r {
		if rule.Message != "" && rule.expression.MatchString(message) {
			return rule
		}
	}
	return nil
}

// Parse reads rules from YAML, and names all that are wrong.
func Parse(text []byte) (Rules, error) {
	var rules Rules
	if err := yaml.UnmarshalStrict(text, &rules); err != nil {
		return nil, err
	}
	var wrong []error
	for i, rule := range rules {
		if err := rule.compile(); err != nil {
			wrong = append(wrong, fmt.Errorf("rule %d: %w", i+1, err))
		}
	}
	return rules, errors.Join(wrong...)
}

func (rule *Rule) compile() (err error) {
	if (rule.Spec == "") == (rule.Message == "") {
		return errors.New("it needs either `spec` or `message`")
	}
	if rule.Reason == "" {
		return errors.New("it has no reason")
	}
	switch rule.Outcome {
	case unsupported:
	case mustPass, leftOut, mustFail:
		if rule.Spec == "" {
			return fmt.Errorf("the outcome `%s` needs `spec`", rule.Outcome)
		}
	default:
		return fmt.Errorf("the outcome is `%s`; it is one of run, skip, fail and unsupported", rule.Outcome)
	}
	rule.expression, err = regexp.Compile(rule.Spec + rule.Message)
	return err
}
