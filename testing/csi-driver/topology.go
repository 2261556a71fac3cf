package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// parseSegment reads `key=value,key=value`.
func parseSegment(text string) (map[string]string, error) {
	segment := map[string]string{}
	for _, pair := range strings.Split(text, ",") {
		key, value, found := strings.Cut(pair, "=")
		if !found || key == "" || value == "" {
			return nil, fmt.Errorf("%q is not of the form KEY=VALUE", pair)
		}
		segment[key] = value
	}
	return segment, nil
}

// segmentKey names a segment in maps and messages.
func segmentKey(segment map[string]string) string {
	pairs := make([]string, 0, len(segment))
	for key, value := range segment {
		pairs = append(pairs, key+"="+value)
	}
	sort.Strings(pairs)
	return strings.Join(pairs, ",")
}

// fits tells whether a segment has all labels of a term.
func fits(segment, term map[string]string) bool {
	for key, value := range term {
		if segment[key] != value {
			return false
		}
	}
	return true
}

// candidates returns the segments that a requirement allows, in the order in which to try them: the preferred segments
// first, then the requisite ones. Without a requirement it returns all, in the order of the flags.
func candidates(segments []map[string]string, wanted *csi.TopologyRequirement) ([]map[string]string, error) {
	if len(segments) == 0 {
		return []map[string]string{nil}, nil
	}
	terms := append(append([]*csi.Topology{}, wanted.GetPreferred()...), wanted.GetRequisite()...)
	if len(terms) == 0 {
		return segments, nil
	}
	var found []map[string]string
	seen := map[string]bool{}
	for _, term := range terms {
		for _, segment := range segments {
			if key := segmentKey(segment); !seen[key] && fits(segment, term.GetSegments()) {
				seen[key] = true
				found = append(found, segment)
			}
		}
	}
	if len(found) == 0 {
		return nil, status.Errorf(codes.ResourceExhausted, "no storage of this driver is where the volume is wanted: %v", terms)
	}
	return found, nil
}

// allowed tells whether an existing volume is in a segment that a requirement allows.
func allowed(segment map[string]string, wanted *csi.TopologyRequirement) bool {
	if segment == nil || len(wanted.GetRequisite()) == 0 {
		return true
	}
	for _, term := range wanted.GetRequisite() {
		if fits(segment, term.GetSegments()) {
			return true
		}
	}
	return false
}
