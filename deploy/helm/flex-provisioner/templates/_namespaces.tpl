{{/* The namespaces of configs, as a list in YAML under `list`. */}}
{{- define "flex-provisioner.configNamespaces" -}}
list:
{{- range (.Values.configNamespaces | default (list .Release.Namespace) | uniq) }}
- {{ . | quote }}
{{- end }}
{{- end }}
