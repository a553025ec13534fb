{{/* Of several pods at most one at a time is evicted by a node drain. One that is not healthy
(still loading, or crashing) never stands in a drain's way. */}}
{{- define "starsd.disruptionBudget" -}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "starsd.name" . }}
  labels:
    {{- include "starsd.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "starsd.selector" . | nindent 6 }}
{{- end }}

{{/* The Deployment of a pool of targets or drafts. */}}
{{- define "starsd.pool" -}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "starsd.name" . }}
  labels:
    {{- include "starsd.labels" . | nindent 4 }}
spec:
  replicas: {{ dig "replicas" 1 .spec }}
  # A start may take this long before Kubernetes calls the rollout stuck.
  progressDeadlineSeconds: {{ add (.spec.startupS | default 600) 120 }}
  strategy:
    {{- if .spec.gpus }}
    # No GPU lies idle for a newcomer: an old pod makes room first.
    rollingUpdate: {maxSurge: 0, maxUnavailable: 1}
    {{- else }}
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
    {{- end }}
  selector:
    matchLabels:
      {{- include "starsd.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "starsd.labels" . | nindent 8 }}
        {{- if include "starsd.downloads" . }}
        starsd/downloads: "true"
        {{- end }}
    spec:
      {{- include "starsd.podSpec" . | nindent 6 }}
{{- end }}
