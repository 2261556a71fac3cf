package main

// What a provisioner in Go needs, in one file, with the standard library alone. Copy it beside your program: provision.go is
// an example.
//
// Main reads the request from the environment, checks ids and names of parameters, and calls the function of the operation.
// A function that returns nil has succeeded. A Failed has its exit code, and every other error asks for another attempt.
// docs/contract.md describes the rest: https://github.com/flex-provisioner/flex-provisioner

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The exit codes of the contract.
const (
	Usage  = 64
	Never  = 65
	NoRoom = 69
	Retry  = 75
	Denied = 77
	Config = 78
)

const (
	// The most that Kubernetes keeps of the last words, in bytes.
	longest = 4096
	// The time for which the API is asked again after a problem that may pass.
	patience = 30 * time.Second
	account  = "/var/run/secrets/kubernetes.io/serviceaccount"
	volumes  = "/api/v1/persistentvolumes"
	claimUID = "flex-provisioner.io/claim-uuid"
)

var uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Object is a part of an object of Kubernetes.
type Object = map[string]any

// Failed is the end of a run, with its exit code and its last words, which the owner of the claim reads: write no secret.
type Failed struct {
	Code  int
	Words string
}

func (failed Failed) Error() string { return failed.Words }

// Run is a request. ID names the storage. All other variables of the contract are in the environment.
type Run struct {
	Operation, ID, Snapshot, CloneOf string
	// The size that the claim requests.
	Bytes int64
}

// Volume is what only the program knows of a volume.
type Volume struct {
	// The volume source, such as nfs with server and path.
	Source Object
	// Only the node of the run reaches the volume.
	OnThisNode bool
	// The real size in bytes, where it is not that of the claim.
	Size int64
	// The volume has the content of its data source.
	Copied bool
}

// Create creates the PersistentVolume, as the last act of a provision run. A volume that an earlier run created with the same
// storage is a success.
func (run Run) Create(volume Volume) error {
	if (run.CloneOf != "" || run.Snapshot != "") && !volume.Copied {
		return Failed{Never, "this program makes no copies, and the volume would be empty"}
	}
	object, until, pause := persistentVolume(volume), time.Now().Add(patience), 50*time.Millisecond
	for {
		done, err := created(object, volume.Source, time.Now().After(until))
		if done || err != nil {
			return err
		}
		time.Sleep(pause)
		pause = min(2*pause, 3*time.Second)
	}
}

// list returns the texts between commas.
func list(text string) []string {
	return strings.FieldsFunc(text, func(letter rune) bool { return letter == ',' })
}

// persistentVolume returns the PersistentVolume of a request.
func persistentVolume(volume Volume) Object {
	size := os.Getenv("SIZE")
	if volume.Size > 0 {
		size = strconv.FormatInt(volume.Size, 10)
	}
	metadata := Object{
		"name": os.Getenv("PV_NAME"),
		"annotations": Object{
			claimUID:                          os.Getenv("PVC_UID"),
			"flex-provisioner.io/volume-id":   os.Getenv("CLAIM_UUID"),
			"pv.kubernetes.io/provisioned-by": os.Getenv("PROVISIONER"),
		},
		"labels": Object{"flex-provisioner.io/instance": os.Getenv("INSTANCE")},
	}
	if os.Getenv("RECLAIM_POLICY") == "Delete" {
		metadata["finalizers"] = []string{"flex-provisioner.io/volume"}
	}
	spec := Object{
		"storageClassName":              os.Getenv("STORAGE_CLASS"),
		"capacity":                      Object{"storage": size},
		"accessModes":                   list(os.Getenv("ACCESS_MODES")),
		"volumeMode":                    os.Getenv("VOLUME_MODE"),
		"mountOptions":                  list(os.Getenv("MOUNT_OPTIONS")),
		"persistentVolumeReclaimPolicy": os.Getenv("RECLAIM_POLICY"),
		"claimRef": Object{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim",
			"namespace": os.Getenv("POD_NAMESPACE"), "name": os.Getenv("CLAIM_UUID"),
		},
	}
	for name, value := range volume.Source {
		spec[name] = value
	}
	if volume.OnThisNode {
		node := Object{"key": "kubernetes.io/hostname", "operator": "In", "values": []string{os.Getenv("POD_NODE")}}
		term := Object{"matchExpressions": []Object{node}}
		spec["nodeAffinity"] = Object{"required": Object{"nodeSelectorTerms": []Object{term}}}
	}
	return Object{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}
}

// ask asks the API. It returns the status, 0 if there is no answer, and the object or the reason.
func ask(method, path string, body Object) (int, Object, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return 0, nil, err
		}
	}
	address := strings.TrimRight(os.Getenv("KUBE_API"), "/") + path
	request, err := http.NewRequest(method, address, bytes.NewReader(text))
	if err != nil {
		return 0, nil, Failed{Config, err.Error()}
	}
	request.Header.Set("Content-Type", "application/json")
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if strings.HasPrefix(address, "https:") {
		token, err := os.ReadFile(account + "/token")
		if err != nil {
			return 0, nil, Failed{Config, "the pod has no ServiceAccount token: does the config name an account? " + err.Error()}
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		if authority, err := os.ReadFile(account + "/ca.crt"); err == nil {
			trust.RootCAs = x509.NewCertPool()
			trust.RootCAs.AppendCertsFromPEM(authority)
		}
	}
	// A proxy of the environment is for the storage, not for the API.
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: trust}}
	answer, err := client.Do(request)
	if err != nil {
		return 0, Object{"message": err.Error()}, nil
	}
	defer answer.Body.Close()
	object := Object{}
	if err := json.NewDecoder(answer.Body).Decode(&object); err != nil {
		return 0, Object{"message": fmt.Sprintf("%s: %v", answer.Status, err)}, nil
	}
	return answer.StatusCode, object, nil
}

// created asks the API for the volume once. It returns false if it must be asked again, unless this was the last time.
func created(volume, source Object, last bool) (bool, error) {
	name := os.Getenv("PV_NAME")
	status, answer, err := ask(http.MethodPost, volumes, volume)
	if err != nil || status == http.StatusCreated {
		return status == http.StatusCreated, err
	}
	if status == http.StatusConflict && answer["reason"] == "AlreadyExists" {
		if status, answer, err = ask(http.MethodGet, volumes+"/"+name, nil); err != nil {
			return false, err
		}
		if status == http.StatusOK {
			err = same(name, source, answer)
			return err == nil, err
		}
	}
	words := fmt.Sprintf("PersistentVolume %s: %v", name, answer["message"])
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return false, Failed{Never, words}
	case http.StatusUnauthorized, http.StatusForbidden:
		return false, Failed{Denied, words + "; the account needs the ClusterRole flex-provisioner-image"}
	}
	if last {
		return false, Failed{Retry, words}
	}
	return false, nil
}

// part returns an object inside of another, empty if there is none.
func part(object Object, name string) Object {
	inside, _ := object[name].(Object)
	return inside
}

// same checks that a volume that exists is for the same claim, and leads to the same storage.
func same(name string, source, found Object) error {
	metadata := part(found, "metadata")
	if metadata["deletionTimestamp"] != nil {
		return Failed{Retry, fmt.Sprintf("PersistentVolume %s of an earlier attempt is still being deleted", name)}
	}
	if part(metadata, "annotations")[claimUID] != os.Getenv("PVC_UID") {
		return Failed{Never, fmt.Sprintf("PersistentVolume %s exists already, for another claim", name)}
	}
	// As JSON, numbers and lists have the types of the answer.
	text, err := json.Marshal(source)
	if err != nil {
		return err
	}
	var ours any
	if err := json.Unmarshal(text, &ours); err != nil {
		return err
	}
	if !within(ours, found["spec"]) {
		return Failed{Never, fmt.Sprintf("PersistentVolume %s exists already for this claim, but leads to other storage", name)}
	}
	return nil
}

// within says whether the API's object has all of ours. The API adds defaults.
func within(ours, theirs any) bool {
	object, isObject := ours.(Object)
	if !isObject {
		return reflect.DeepEqual(ours, theirs)
	}
	other, isObject := theirs.(Object)
	for name, value := range object {
		if !isObject || !within(value, other[name]) {
			return false
		}
	}
	return isObject
}

// checkIDs refuses ids that are no UUIDs, because they become parts of paths, and a run without its id.
func checkIDs(run Run) error {
	ids, needed := []string{run.ID, run.CloneOf, run.Snapshot}, []string{run.ID}
	switch run.Operation {
	case "list", "capacity":
		return nil
	case "delete":
		// A claim whose snapshot was refused can be deleted.
		ids = ids[:1]
	case "snapshot":
		needed = []string{run.ID, run.Snapshot}
	case "delete-snapshot":
		needed = []string{run.Snapshot}
	}
	for _, id := range ids {
		if id != "" && !uuid.MatchString(id) {
			return Failed{Never, "an id of the run is no UUID: nothing is done"}
		}
	}
	for _, id := range needed {
		if id == "" {
			return Failed{Usage, "the run has no id: nothing is done"}
		}
	}
	return nil
}

// variable returns the variable of a parameter.
func variable(name string) string {
	return strings.Map(func(letter rune) rune {
		if letter >= 'A' && letter <= 'Z' || letter >= '0' && letter <= '9' {
			return letter
		}
		return '_'
	}, strings.ToUpper(name))
}

// checkParameters refuses names that the program does not read where a volume begins, because the default may delete data.
func checkParameters(run Run, known []string) error {
	ignored := strings.Fields(strings.ReplaceAll(os.Getenv("IGNORED_PARAMETERS"), ",", " "))
	read := map[string]bool{"IGNORED_PARAMETERS": true, "FSTYPE": true}
	for _, name := range append(ignored, known...) {
		read[variable(name)] = true
	}
	attributes := Object{}
	if text := os.Getenv("ATTRIBUTES"); text != "" {
		if err := json.Unmarshal([]byte(text), &attributes); err != nil {
			return Failed{Config, "ATTRIBUTES cannot be read: " + err.Error()}
		}
	}
	for _, name := range list(os.Getenv("PARAMETER_NAMES")) {
		if strings.Contains(name, "/") || read[variable(name)] {
			continue
		}
		words := fmt.Sprintf("this program does not know the parameter %s; it knows: %s", name, strings.Join(known, ", "))
		_, isAttribute := attributes[name]
		if run.Operation == "provision" || run.Operation == "move-in" || run.Operation == "modify" && isAttribute {
			return Failed{Config, words + ". Correct the name in the ConfigMap, the StorageClass or the VolumeAttributesClass"}
		}
		fmt.Fprintln(os.Stderr, words+"; the run continues")
	}
	return nil
}

// end ends the run with its last words.
func end(code int, words string) {
	path := os.Getenv("FLEX_TERMINATION_LOG")
	if path == "" {
		path = "/dev/termination-log"
	}
	fmt.Fprintln(os.Stderr, words)
	if err := os.WriteFile(path, []byte(words)[:min(len(words), longest)], 0o666); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// Main does the run. The parameters are the names that the program reads. There is a function for each operation.
func Main(parameters []string, operations map[string]func(Run) error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		os.Exit(128 + int(syscall.SIGTERM))
	}()
	size, _ := strconv.ParseInt(os.Getenv("SIZE_BYTES"), 10, 64)
	run := Run{os.Getenv("OPERATION"), os.Getenv("CLAIM_UUID"), os.Getenv("SNAPSHOT_ID"), os.Getenv("CLONE_OF"), size}
	work, isKnown := operations[run.Operation]
	if !isKnown {
		end(Usage, "this program cannot "+run.Operation)
	}
	err := checkIDs(run)
	if err == nil {
		err = checkParameters(run, parameters)
	}
	if err == nil {
		err = work(run)
	}
	var failed Failed
	switch {
	case errors.As(err, &failed):
		end(failed.Code, failed.Words)
	case err != nil:
		end(Retry, err.Error())
	}
}
