{{/* The namespaces of configs, as a list in YAML under `list`. */}}
{{- define "flex-provisioner.configNamespaces" -}}
list:
{{- range (.Values.configNamespaces | default (list .Release.Namespace) | uniq) }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* The labels that Kubernetes recommends, and those of the admin. */}}
{{- define "flex-provisioner.labels" -}}
app.kubernetes.io/name: {{ .Values.name }}
app.kubernetes.io/part-of: flex-provisioner
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The name of an image, from a dict with `registry`, `repository`, `tag` and `digest`. */}}
{{- define "flex-provisioner.image" -}}
{{- $name := ternary (printf "%s/%s" .registry .repository) .repository (not (empty .registry)) -}}
{{- if .digest }}{{ printf "%s@%s" $name .digest }}{{ else }}{{ printf "%s:%s" $name .tag }}{{ end -}}
{{- end }}

{{/* The image for classes with a script. */}}
{{- define "flex-provisioner.shellImage" -}}
{{- $own := .Values.shellImage }}
{{- include "flex-provisioner.image" (dict
  "registry" ($own.registry | default .Values.global.imageRegistry | default .Values.image.registry)
  "repository" ($own.repository | default (printf "%s/shell" (dir .Values.image.repository) | trimPrefix "./"))
  "tag" ($own.tag | default .Values.image.tag | default .Chart.AppVersion)
  "digest" $own.digest) }}
{{- end }}

{{/* The names of the Secrets for pulling images, as a list in YAML under `list`. An entry may be a map, as in a pod. */}}
{{- define "flex-provisioner.pullSecrets" -}}
{{- $names := list }}
{{- range concat (.Values.global.imagePullSecrets | default list) (.Values.imagePullSecrets | default list) }}
{{- $names = append $names (kindIs "map" . | ternary (get (kindIs "map" . | ternary . dict) "name") .) }}
{{- end }}
{{- dict "list" ($names | uniq) | toYaml }}
{{- end }}

{{/* The account of the orchestrator. */}}
{{- define "flex-provisioner.account" -}}{{ .Values.serviceAccount.name | default .Values.name }}{{- end }}

{{/* `true` where the platform assigns the user ids of pods. */}}
{{- define "flex-provisioner.assignsUsers" -}}
{{- $enabled := .Values.openshift.enabled | toString }}
{{- if or (eq $enabled "true") (and (eq $enabled "auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) }}true{{ end }}
{{- end }}

{{/* The names of the orchestrator, which classes have to use. */}}
{{- define "flex-provisioner.provisioner" -}}{{ .Values.provisionerName | default "flex-provisioner.io" }}{{- end }}
{{- define "flex-provisioner.plugin" -}}{{ .Values.pluginName | default "kubernetes.io/flex-provisioner" }}{{- end }}

{{/*
What the orchestrator's pod and the pods of hooks share: account, Secrets for pulling, place and security, as fields of a pod.
*/}}
{{- define "flex-provisioner.pod" -}}
{{- $security := .Values.podSecurityContext }}
{{- if include "flex-provisioner.assignsUsers" . }}{{ $security = omit $security "runAsUser" "runAsGroup" "fsGroup" }}{{ end -}}
serviceAccountName: {{ include "flex-provisioner.account" . }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with (include "flex-provisioner.pullSecrets" . | fromYaml).list }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with $security }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The image of the orchestrator and of the tool. */}}
{{- define "flex-provisioner.ownImage" -}}
{{- include "flex-provisioner.image" (dict
  "registry" (.Values.global.imageRegistry | default .Values.image.registry)
  "repository" .Values.image.repository
  "tag" (.Values.image.tag | default .Chart.AppVersion)
  "digest" .Values.image.digest) }}
{{- end }}

{{/* Refuses another name alone. Two orchestrators with the same identity would end each other's attempts. */}}
{{- define "flex-provisioner.verifyNames" -}}
{{- if ne .Values.name "flex-provisioner" }}
{{- range $key := list "instance" "provisionerName" "pluginName" }}
{{- if not (get $.Values $key) }}
{{- fail (printf "%s: the name is %s, so write %s too: a second orchestrator with the %s of the first would end its attempts" $key $.Values.name $key $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The settings as environment of the container, so that all subcommands in it know them. */}}
{{- define "flex-provisioner.settings" -}}
{{- $settings := list
  (list "FLEX_PROVISIONER_NAME" .Values.provisionerName)
  (list "FLEX_PLUGIN_NAME" .Values.pluginName)
  (list "FLEX_INSTANCE" .Values.instance)
  (list "FLEX_CONFIG_NAMESPACES" (.Values.configNamespaces | uniq | join ","))
  (list "FLEX_BINDING" .Values.binding)
  (list "FLEX_LOG_FORMAT" .Values.logFormat)
  (list "FLEX_LOG" .Values.log)
  (list "FLEX_SWEEP_INTERVAL" .Values.sweepInterval)
  (list "FLEX_KUBE_API" .Values.kubeApi)
  (list "FLEX_SHELL_IMAGE" (include "flex-provisioner.shellImage" .)) -}}
{{- range $settings }}
{{- if last . }}
- name: {{ first . }}
  value: {{ last . | quote }}
{{- end }}
{{- end }}
{{- end }}
