{{/*
A class, from a dict with `root`, `name` and `class`, as JSON: `namespace`, `account`, `image`, `secret` (its name), `data` of
the config, `storageClass` and `snapshotClass` (empty for none), `lacksKind` where the cluster lacks the kind of the latter,
and `objects`, the others of its preset.

Each mistake is one sentence: where, what, and what to do.
*/}}
{{- define "flex-provisioner.class" -}}
{{- $root := .root }}
{{- $name := .name }}
{{- $at := printf "classes.%s" $name }}
{{- $class := include "flex-provisioner.classFields" . | fromJson }}
{{- $preset := include "flex-provisioner.preset" (dict "root" $root "at" $at "name" $class.preset) | fromJson }}
{{- $configs := (include "flex-provisioner.configNamespaces" $root | fromYaml).list }}
{{- $namespace := $class.namespace | default (first $configs) }}
{{- if not (has $namespace $configs) }}
{{- fail (printf "%s.namespace: the orchestrator does not read configs in the namespace %s; write one of %s, or add it to configNamespaces" $at $namespace (join ", " $configs)) }}
{{- end }}
{{- $account := $class.serviceAccount.name | default (printf "%s-provisioner" $name) }}
{{- $image := include "flex-provisioner.classImage" (dict "root" $root "class" $class "preset" $preset) }}
{{- $secret := include "flex-provisioner.classSecret" (dict "at" $at "name" $name "namespace" $namespace "class" $class "preset" $preset) }}
{{- $marks := dict "NAME" $root.Values.name "NAMESPACE" $namespace "CLASS" $name "ACCOUNT" $account "SECRET" $secret "IMAGE" $image "PROVISIONER" (include "flex-provisioner.provisioner" $root) }}
{{- $marks = merge $marks (include "flex-provisioner.fields" (dict "at" $at "class" $class "preset" $preset) | fromJson) }}
{{- $text := get $preset "text" }}
{{- range $mark, $value := $marks }}{{ $text = $text | replace (printf "@%s@" $mark) $value }}{{ end }}
{{- $data := dict }}
{{- $storageClass := dict }}
{{- $objects := list }}
{{- range $document := splitList "\n---\n" $text }}
{{- $object := $document | fromYaml }}
{{- if hasKey $object "Error" }}
{{- fail (printf "%s: a value of its config or settings cannot stand in the preset %s; %s" $at $class.preset (get $object "Error")) }}
{{- end }}
{{- $kind := get $object "kind" }}
{{- if eq $kind "ConfigMap" }}{{ $data = $object.data }}
{{- else if eq $kind "StorageClass" }}{{ $storageClass = $object }}
{{- else if $kind }}{{ $objects = append $objects $object }}{{ end }}
{{- end }}
{{- $data = include "flex-provisioner.classData" (dict "root" $root "class" $class "data" $data "image" $image "account" $account "secret" $secret "key" $preset.secret.key) | fromJson }}
{{- if not (or (get $data "image") (get $data "script")) }}
{{- fail (printf "%s: the class has no image; write a preset (%s) in %s.preset, an image in %s.config.image, or a shell program in %s.script" $at (include "flex-provisioner.presetNames" $root) $at $at $at) }}
{{- end }}
{{- $kinds := include "flex-provisioner.classKinds" (dict "root" $root "at" $at "name" $name "class" $class "preset" $preset "data" $data "storageClass" $storageClass) | fromJson }}
{{- merge $kinds (dict "namespace" $namespace "account" $account "image" $image "secret" $secret "data" $data "objects" $objects "class" $class) | toJson }}
{{- end }}

{{/* The fields of a class, with those of classDefaults where it sets none. */}}
{{- define "flex-provisioner.classFields" -}}
{{- $at := printf "classes.%s" .name }}
{{- if not (kindIs "map" .class) }}
{{- fail (printf "%s: a class is a map; write for example %s.preset=hostpath" $at $at) }}
{{- end }}
{{- if or (gt (len .name) 50) (not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" .name)) }}
{{- fail (printf "classes: %q cannot be the name of a class; write lower-case letters, digits, - and ., at most 50, such as fast-ssd" .name) }}
{{- end }}
{{- $fields := deepCopy .root.Values.classDefaults }}
{{- range $key, $value := .class }}
{{- if not (hasKey $fields $key) }}
{{- fail (printf "%s.%s: a class has no such field; write one of %s, and keys of the provisioner config under %s.config" $at $key (keys $fields | sortAlpha | join ", ") $at) }}
{{- end }}
{{- $default := get $fields $key }}
{{- if and (kindIs "map" $default) (kindIs "map" $value) }}
{{- range $inner, $innerValue := $value }}{{ $_ := set $default $inner $innerValue }}{{ end }}
{{- else if not (kindIs "invalid" $value) }}{{ $_ := set $fields $key $value }}{{ end }}
{{- end }}
{{- toJson $fields }}
{{- end }}

{{- define "flex-provisioner.presetNames" -}}
{{- $names := list }}
{{- range $path, $_ := .Files.Glob "files/presets/*.yaml" }}{{ $names = append $names (base $path | trimSuffix ".yaml") }}{{ end }}
{{- $names | sortAlpha | join ", " }}
{{- end }}

{{/* What a preset says of itself, with its documents as `text`. */}}
{{- define "flex-provisioner.preset" -}}
{{- if .name }}
{{- $text := .root.Files.Get (printf "files/presets/%s.yaml" .name) }}
{{- if not $text }}
{{- fail (printf "%s.preset: there is no preset %q; write one of %s, or leave preset out and name an image in %s.config.image" .at .name (include "flex-provisioner.presetNames" .root) .at) }}
{{- end }}
{{- $documents := splitList "\n---\n" $text }}
{{- set (first $documents | fromYaml) "text" (rest $documents | join "\n---\n") | toJson }}
{{- else }}
{{- dict "image" "" "fields" list "secret" (dict "key" "secret-env" "needs" dict) "snapshotClass" true "text" "" | toJson }}
{{- end }}
{{- end }}

{{/* The image of a class: `config.image`, else that of the preset beside the orchestrator's. */}}
{{- define "flex-provisioner.classImage" -}}
{{- $values := .root.Values }}
{{- if get .class.config "image" }}{{ get .class.config "image" }}
{{- else if .preset.image }}
{{- $beside := printf "%s/%s" (dir $values.image.repository) .preset.image | trimPrefix "./" }}
{{- $own := .class.image }}
{{- include "flex-provisioner.image" (dict
  "registry" ($own.registry | default $values.global.imageRegistry | default $values.image.registry)
  "repository" ($own.repository | default $beside)
  "tag" ($own.tag | default $values.image.tag | default .root.Chart.AppVersion)
  "digest" $own.digest) }}
{{- end }}
{{- end }}

{{/* The name of the Secret of a class; empty for none. */}}
{{- define "flex-provisioner.classSecret" -}}
{{- $at := .at }}
{{- $namespace := .namespace }}
{{- $secret := .class.secret }}
{{- $needs := .preset.secret.needs }}
{{- if and .class.existingSecret $secret }}
{{- fail (printf "%s: secret and existingSecret are both set; write the keys in %s.secret, or the name of a Secret in %s.existingSecret" $at $at $at) }}
{{- end }}
{{- if .class.existingSecret }}{{ .class.existingSecret }}
{{- else if not (hasKey .class.config .preset.secret.key) }}
{{- range $key, $what := $needs }}
{{- if not (get $secret $key) }}
{{- fail (printf "%s.secret: the key %s is missing, %s; name a Secret of the namespace %s with the keys %s in %s.existingSecret, or write them in %s.secret" $at $key $what $namespace (keys $needs | sortAlpha | join ", ") $at $at) }}
{{- end }}
{{- end }}
{{- if $secret }}{{ printf "%s-secret" .name }}{{ end }}
{{- end }}
{{- end }}

{{/* The values of the fields of a preset, as texts that can stand in YAML. */}}
{{- define "flex-provisioner.fields" -}}
{{- $at := .at }}
{{- $class := .class }}
{{- $values := dict }}
{{- range $field := .preset.fields }}
{{- $value := get (get $class $field.in) $field.name | default $field.default }}
{{- $path := printf "%s.%s.%s" $at $field.in $field.name }}
{{- if kindIs "invalid" $value }}
{{- fail (printf "%s is missing: the preset %s needs %s; set it, for example to %s" $path $class.preset $field.what $field.example) }}
{{- end }}
{{- if not (kindIs "string" $value) }}{{ $value = toJson $value }}
{{- else if not (regexMatch "^[A-Za-z0-9/.][^\\s\"'#,\\[\\]{}]*$" $value) }}
{{- fail (printf "%s: %q cannot be %s; write one word, such as %s" $path $value $field.what $field.example) }}
{{- end }}
{{- $_ := set $values $field.name $value }}
{{- end }}
{{- range $key, $_ := $class.settings }}
{{- if not (hasKey $values $key) }}
{{- fail (printf "%s.settings.%s: the preset %q has no such setting; write it under %s.config if it is a key or a parameter of the provisioner config" $at $key $class.preset $at) }}
{{- end }}
{{- end }}
{{- toJson $values }}
{{- end }}

{{/* The data of the config. */}}
{{- define "flex-provisioner.classData" -}}
{{- $class := .class }}
{{- $data := .data }}
{{- $_ := set $data "plugin-name" (include "flex-provisioner.plugin" .root) }}
{{- $_ := set $data "service-account-name" .account }}
{{- with .image }}{{ $_ := set $data "image" . }}{{ end }}
{{- with $class.script }}{{ $_ := set $data "script" . }}{{ end }}
{{- if and .secret (not (hasKey $data .key)) }}{{ $_ := set $data .key .secret }}{{ end }}
{{- $pull := (include "flex-provisioner.pullSecrets" .root | fromYaml).list }}
{{- if $pull }}{{ $_ := set $data "image-pull-secrets" (join ", " $pull) }}{{ end }}
{{- if and (include "flex-provisioner.assignsUsers" .root) (not (hasKey $data "run-as-user")) }}{{ $_ := set $data "run-as-user" "any" }}{{ end }}
{{- range $key, $value := $class.config }}
{{- if kindIs "invalid" $value }}{{ $_ := unset $data $key }}
{{- else if kindIs "string" $value }}{{ $_ := set $data $key $value }}
{{- else if or (kindIs "map" $value) (kindIs "slice" $value) }}{{ $_ := set $data $key (toYaml $value) }}
{{- else }}{{ $_ := set $data $key (toJson $value) }}{{ end }}
{{- end }}
{{- toJson $data }}
{{- end }}

{{/* The StorageClass and the VolumeSnapshotClass; each is empty for none. */}}
{{- define "flex-provisioner.classKinds" -}}
{{- $class := .class }}
{{- $at := .at }}
{{- $own := include "flex-provisioner.provisioner" .root }}
{{- $provisioner := get .data "replaces-provisioner" | default $own }}
{{- $wanted := $class.storageClass.create | toString | eq "" | ternary (or (not (empty .storageClass)) (empty $class.preset)) ($class.storageClass.create | toString | eq "true") }}
{{- if and $class.default (not $wanted) }}
{{- fail (printf "%s.default: the class has no StorageClass that could be the default; set %s.storageClass.create=true, or leave default out" $at $at) }}
{{- end }}
{{- $storageClass := dict }}
{{- if $wanted }}
{{- $storageClass = .storageClass | default (dict "volumeBindingMode" "WaitForFirstConsumer" "reclaimPolicy" "Delete") }}
{{- $annotations := deepCopy $class.annotations }}
{{- if $class.default }}{{ $_ := set $annotations "storageclass.kubernetes.io/is-default-class" "true" }}{{ end }}
{{- $_ := set $storageClass "metadata" (dict "name" .name "annotations" $annotations "labels" $class.labels) }}
{{- $_ := set $storageClass "provisioner" $provisioner }}
{{- range $field := list "reclaimPolicy" "volumeBindingMode" "mountOptions" "allowedTopologies" }}
{{- with get $class $field }}{{ $_ := set $storageClass $field . }}{{ end }}
{{- end }}
{{- if ne ($class.allowVolumeExpansion | toString) "" }}{{ $_ := set $storageClass "allowVolumeExpansion" ($class.allowVolumeExpansion | toString | eq "true") }}{{ end }}
{{- $parameters := dict }}
{{- range $key, $value := get $storageClass "parameters" | default dict }}{{ $_ := set $parameters $key $value }}{{ end }}
{{- range $key, $value := $class.parameters }}{{ $_ := set $parameters $key (kindIs "string" $value | ternary $value (toJson $value)) }}{{ end }}
{{- if $parameters }}{{ $_ := set $storageClass "parameters" $parameters }}{{ end }}
{{- end }}
{{- $snapshots := $class.snapshotClass }}
{{- /* The kind is a custom resource. Each cluster serves apiregistration.k8s.io, which `helm template` does not list by itself. */}}
{{- $served := .root.Capabilities.APIVersions }}
{{- $isKnown := or (not ($served.Has "apiregistration.k8s.io/v1")) ($served.Has "snapshot.storage.k8s.io/v1/VolumeSnapshotClass") ($served.Has "snapshot.storage.k8s.io/v1") }}
{{- $can := has "snapshot" (splitList "," (get .data "capabilities" | default "" | nospace)) }}
{{- $wanted = $snapshots.create | toString | eq "" | ternary (and .preset.snapshotClass $can $isKnown) ($snapshots.create | toString | eq "true") }}
{{- $snapshotClass := dict }}
{{- if $wanted }}
{{- $annotations := deepCopy $snapshots.annotations }}
{{- if $snapshots.default | toString | eq "" | ternary $class.default ($snapshots.default | toString | eq "true") }}{{ $_ := set $annotations "snapshot.storage.kubernetes.io/is-default-class" "true" }}{{ end }}
{{- $snapshotClass = dict "driver" $provisioner "deletionPolicy" $snapshots.deletionPolicy "metadata" (dict "name" .name "annotations" $annotations "labels" $snapshots.labels) }}
{{- with $snapshots.parameters }}{{ $_ := set $snapshotClass "parameters" . }}{{ end }}
{{- end }}
{{- $lacksKind := and (eq (toString $snapshots.create) "") .preset.snapshotClass $can (not $isKnown) }}
{{- dict "storageClass" $storageClass "snapshotClass" $snapshotClass "lacksKind" $lacksKind | toJson }}
{{- end }}
