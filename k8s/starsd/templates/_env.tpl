{{/* Variables of a workload: first what the chart knows, then the settings of its values. */}}
{{- define "starsd.env" -}}
{{- $ipv6 := eq .root.Values.ipFamily "IPv6" -}}
- name: STARSD_HOST
  value: {{ $ipv6 | ternary "::" "0.0.0.0" | quote }}
- name: STARSD_PORT
  value: {{ include "starsd.port" . | quote }}
- name: STARSD_METRICS_PORT
  value: {{ include "starsd.metricsPort" . | quote }}
{{- if eq .role "target" }}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: STARSD_ADVERTISE_URL
  value: http://{{ $ipv6 | ternary "[$(POD_IP)]" "$(POD_IP)" }}:{{ include "starsd.port" . }}
{{- end }}
- name: STARSD_REDIS_URL
  {{- include "starsd.redisUrl" .root | nindent 2 }}
{{- if ne .role "gateway" }}
{{ include "starsd.modelEnv" . }}
{{- end }}
{{- range $name, $value := include "starsd.settings" . | fromYaml }}
- name: STARSD_{{ upper $name }}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- end }}

{{/* A role's own settings win over those for all services; a GPU implies cuda. */}}
{{- define "starsd.settings" -}}
{{- $implied := dict -}}
{{- if .spec.gpus }}{{ $_ := set $implied "device" "cuda" }}{{ end -}}
{{- $shared := deepCopy .root.Values.settings -}}
{{- $_ := set $shared "namespace" ($shared.namespace | default (include "starsd.fullname" .root)) -}}
{{- mergeOverwrite $implied $shared (deepCopy (.spec.settings | default dict)) | toYaml -}}
{{- end }}

{{- define "starsd.modelEnv" -}}
- name: STARSD_ID
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: STARSD_MODEL
  value: {{ .spec.model | quote }}
- name: STARSD_CACHE_DIR
  value: /models
- name: HF_HOME
  value: /models/hub
{{- with .root.Values.huggingFace.tokenSecret }}
{{- if .name }}
- name: HF_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .name | quote }}, key: {{ .key | quote }}}}
{{- end }}
{{- end }}
{{- range $name, $value := .root.Values.huggingFace.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "starsd.redisUrl" -}}
{{- $external := .Values.redis.external -}}
{{- if .Values.redis.bundled.enabled -}}
value: redis://{{ include "starsd.name" (dict "root" . "role" "redis") }}:6379
{{- else if $external.url -}}
value: {{ $external.url | quote }}
{{- else -}}
{{- with $external.urlSecret -}}
valueFrom: {secretKeyRef: {name: {{ .name | quote }}, key: {{ .key | quote }}}}
{{- end -}}
{{- end -}}
{{- end }}
