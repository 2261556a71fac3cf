package verdict

import (
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
)

const text = `
- {spec: 'small .* of the kind', outcome: run, reason: it is the smallest}
- {spec: 'small', outcome: skip, reason: the large ones show the same}
- {spec: 'broken', outcome: fail, reason: it needs a real disk}
- {spec: 'other', outcome: unsupported, reason: another driver}
- {message: 'does not support ntfs', outcome: unsupported, reason: the nodes run Linux}
`

func rulesOf(t *testing.T, text string) Rules {
	t.Helper()
	rules, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// asSaid has one spec for each rule, each with the outcome that the rule says.
func asSaid() []Outcome {
	return []Outcome{
		{Spec: "small one of the kind", State: types.SpecStatePassed},
		{Spec: "small two", State: types.SpecStateSkipped, Message: "the large ones show the same"},
		{Spec: "broken", State: types.SpecStateFailed, Message: "no disk"},
		{Spec: "other", State: types.SpecStateSkipped, Message: "another driver"},
		{Spec: "ntfs", State: types.SpecStateSkipped, Message: "driver does not support ntfs - skipping"},
		{Spec: "large", State: types.SpecStatePassed},
	}
}

func TestSpecsThatEndAsTheRulesSayAreGood(t *testing.T) {
	verdict := Judge(rulesOf(t, text), asSaid(), true)
	if !verdict.Good() {
		t.Errorf("not good:\n%s", verdict)
	}
	want := "specs 4: 2 passed, 1 failed (1 of them as listed), 1 skipped for a reason\n"
	if apart := "not for these drivers: 1 specs: the nodes run Linux"; !strings.Contains(verdict.String(), apart) {
		t.Errorf("the verdict does not say %q:\n%s", apart, verdict)
	}
	if !strings.HasSuffix(verdict.String(), want) {
		t.Errorf("the verdict does not end with %q:\n%s", want, verdict)
	}
}

func TestEachOtherEndIsNamed(t *testing.T) {
	for name, other := range map[string]struct {
		spec    int
		state   types.SpecState
		message string
		says    string
	}{
		"a failed spec without a rule":      {5, types.SpecStateFailed, "boom\nmore", "failed: large: boom"},
		"a spec that panics":                {5, types.SpecStatePanicked, "nil", "failed: large: nil"},
		"a listed failure that passes":      {2, types.SpecStatePassed, "", "a rule says that it fails: broken"},
		"a spec that must pass and fails":   {0, types.SpecStateFailed, "no", "failed: small one of the kind"},
		"a spec that skips itself silently": {5, types.SpecStateSkipped, "no snapshots", "no rule has its message: large: no snapshots"},
		"a listed failure that skips":       {2, types.SpecStateSkipped, "no disk", "no rule has its message: broken: no disk"},
		"a spec that never began":           {5, types.SpecStatePending, "", "pending: large"},
	} {
		t.Run(name, func(t *testing.T) {
			all := asSaid()
			all[other.spec].State, all[other.spec].Message = other.state, other.message
			verdict := Judge(rulesOf(t, text), all, false)
			if verdict.Good() || !strings.Contains(verdict.String(), other.says) {
				t.Errorf("the verdict does not say %q:\n%s", other.says, verdict)
			}
		})
	}
}

func TestARuleThatNoSpecNeedsIsNamed(t *testing.T) {
	rules := rulesOf(t, text+"- {spec: gone, outcome: skip, reason: old}\n")
	if verdict := Judge(rules, asSaid(), true); !strings.Contains(verdict.String(), "no spec needs the rule `gone`") {
		t.Errorf("the rule is not named:\n%s", verdict)
	}
	if verdict := Judge(rules, asSaid(), false); !verdict.Good() {
		t.Errorf("a part of the specs needs all rules:\n%s", verdict)
	}
	if verdict := Judge(nil, nil, true); verdict.Good() {
		t.Error("no spec at all is good")
	}
}

func TestWrongRulesAreNamed(t *testing.T) {
	for text, says := range map[string]string{
		"- {outcome: skip, reason: why}":                        "either `spec` or `message`",
		"- {spec: a, message: b, outcome: skip, reason: why}":   "either `spec` or `message`",
		"- {spec: a, outcome: skip}":                            "has no reason",
		"- {message: a, outcome: fail, reason: why}":            "needs `spec`",
		"- {spec: a, outcome: maybe, reason: why}":              "`maybe`",
		"- {spec: 'a(', outcome: skip, reason: why}":            "missing closing",
		"- {spec: a, outcome: skip, reason: why, until: later}": "until",
		"- {spec: a, outcome: skip, reason: why}\n- {spec: b}":  "rule 2",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: the error does not say %q: %v", text, says, err)
		}
	}
}
