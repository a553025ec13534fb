{{/* What every pod of the star has, Redis included: nobody is root, nothing is writable but its
volumes (the restricted Pod Security Standard), and nobody may speak to the API server. */}}
{{- define "starsd.podSecurity" -}}
serviceAccountName: {{ include "starsd.fullname" .root }}
automountServiceAccountToken: false
# Services refuse STARSD_* variables they do not know, and every Service named starsd-*, ours too,
# would inject some (STARSD_GATEWAY_PORT=tcp://...).
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "starsd.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Pods of a workload keep apart; only those of one revision count, so a rollout ends spread. */}}
{{- define "starsd.placement" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: {{ .spec.spread | default "ScheduleAnyway" }}
    labelSelector:
      matchLabels:
        {{- include "starsd.selector" . | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
{{- with .spec.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .spec.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .spec.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{/* Longest orderly stop: preStop, the drain, and 30 s to end connections and the step loop. */}}
{{- define "starsd.graceS" -}}
{{ add (.spec.preStopS | default 0) (dig "settings" "drain_s" 5 .spec) 30 }}
{{- end }}

{{/* The spec of a pod that runs one of our services. */}}
{{- define "starsd.podSpec" -}}
{{ include "starsd.podSecurity" . }}
terminationGracePeriodSeconds: {{ include "starsd.graceS" . }}
{{ include "starsd.placement" . }}
containers:
  - name: {{ .role }}
    image: {{ include "starsd.image" . | quote }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    ports:
      - {name: http, containerPort: {{ include "starsd.port" . }}}
      - {name: metrics, containerPort: {{ include "starsd.metricsPort" . }}}
    env:
      {{- include "starsd.env" . | nindent 6 }}
    {{- include "starsd.probes" . | nindent 4 }}
    {{- with .spec.preStopS }}
    # Requests still come in until every proxy knows that this pod is leaving.
    lifecycle:
      preStop: {sleep: {seconds: {{ . }}}}
    {{- end }}
    resources:
      {{- include "starsd.resources" . | nindent 6 }}
    securityContext:
      {{- include "starsd.containerSecurity" . | nindent 6 }}
    volumeMounts:
      - {name: tmp, mountPath: /tmp}
      {{- if ne .role "gateway" }}
      - {name: models, mountPath: /models}
      {{- end }}
volumes:
  - name: tmp
    emptyDir: {}
  {{- if ne .role "gateway" }}
  - name: models
    {{- include "starsd.cacheVolume" .root | nindent 4 }}
  {{- end }}
{{- end }}

{{/* The model services load for minutes; the gateway serves at once, but not without a target. */}}
{{- define "starsd.probes" -}}
{{- if eq .role "gateway" -}}
# Started: it answers. Not /health/ready, which needs a target; no restart would bring one.
startupProbe:
  httpGet: {path: /health/live, port: metrics}
  periodSeconds: 1
  failureThreshold: 60
# Live: it answers.
{{- else -}}
# Started: the model is loaded. A service that loads counts as alive, so this alone ends a
# download that hangs.
startupProbe:
  httpGet: {path: /health/ready, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: {{ div (add (.spec.startupS | default 600 | int) 4) 5 }}
# Live: it answers, and its step loop has not hung. Redis is not needed for that.
{{- end }}
livenessProbe:
  httpGet: {path: /health/live, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
# Ready: it would serve a request now{{ if eq .role "gateway" }}, for which it knows a live target{{ end }}.
readinessProbe:
  httpGet: {path: /health/ready, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 2
{{- end }}

{{- define "starsd.resources" -}}
{{- $resources := deepCopy .spec.resources -}}
{{- if .spec.gpus -}}
{{- $gpu := dict "nvidia.com/gpu" (int .spec.gpus) -}}
{{- $_ := set $resources "limits" (merge $gpu ($resources.limits | default dict)) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end }}

{{- define "starsd.cacheVolume" -}}
{{- with .Values.cache -}}
{{- if .claim -}}
persistentVolumeClaim: {claimName: {{ .claim | quote }}}
{{- else if .create -}}
persistentVolumeClaim: {claimName: {{ include "starsd.fullname" $ }}-cache}
{{- else -}}
emptyDir: {sizeLimit: {{ .size }}}
{{- end -}}
{{- end -}}
{{- end }}
