{{/* Names and labels. A "workload" is a dict: root (the chart's scope), role (gateway, target,
draft or redis), spec (its values) and, for targets and drafts, pool (its name). */}}

{{/* Prefix of every object's name, at most 32 characters so that all names fit into 63. What was
cut off lives on in a hash: two long release names never meet. */}}
{{- define "starsd.fullname" -}}
{{- $name := .Release.Name -}}
{{- if not (contains .Chart.Name $name) -}}
{{- $name = printf "%s-%s" $name .Chart.Name -}}
{{- end -}}
{{- if gt (len $name) 32 -}}
{{- $name = printf "%s-%s" ($name | trunc 23 | trimSuffix "-") (sha256sum $name | trunc 8) -}}
{{- end -}}
{{- $name -}}
{{- end }}

{{- define "starsd.name" -}}
{{- include "starsd.fullname" .root }}-{{ .role }}{{ with .pool }}-{{ . }}{{ end }}
{{- end }}

{{/* Labels of all pods of this release; what the network policies deny by default. */}}
{{- define "starsd.starLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Labels of one role's pods (no pool) or of one workload's. */}}
{{- define "starsd.selector" -}}
{{ include "starsd.starLabels" .root }}
app.kubernetes.io/component: {{ .role }}
{{- with .pool }}
starsd/pool: {{ . | quote }}
{{- end }}
{{- end }}

{{- define "starsd.labels" -}}
{{ include "starsd.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- end }}

{{/* Ports: HTTP by role; health and metrics are 1000 higher. */}}
{{- define "starsd.port" -}}
{{ get (dict "gateway" 8000 "target" 8001 "draft" 8002 "redis" 6379) .role }}
{{- end }}

{{- define "starsd.metricsPort" -}}
{{ include "starsd.port" . | int | add 1000 }}
{{- end }}

{{- define "starsd.image" -}}
{{- $tag := .root.Values.image.tag | default .root.Chart.AppVersion -}}
{{- $name := printf "starsd-%s:%s" .role $tag -}}
{{- with .root.Values.image.registry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{- .spec.image | default $name -}}
{{- end }}

{{/* Non-empty if a model or draft of this name is fetched from Hugging Face: the rule of
starsd.engine.checkpoint and starsd.engine.drafts. */}}
{{- define "starsd.onHub" -}}
{{- if not (regexMatch "^([/.~]|layers:|noisy:|(auto|self|smollm2-135m-instruct)$)" .) -}}
yes
{{- end -}}
{{- end }}

{{- define "starsd.downloads" -}}
{{- include "starsd.onHub" .spec.model -}}
{{- include "starsd.onHub" (dig "settings" "draft" "auto" .spec) -}}
{{- end }}
