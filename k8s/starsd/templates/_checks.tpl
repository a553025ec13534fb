{{/* What the schema cannot say clearly. Each message names the value. */}}
{{- define "starsd.checks" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" .Release.Name) -}}
{{- $want := "want lower-case letters, digits and -, first a letter: Services are named after it" -}}
{{- fail (printf "release name %s: %s" .Release.Name $want) -}}
{{- end -}}
{{- $redis := .Values.redis -}}
{{- $external := $redis.external -}}
{{- $ways := list -}}
{{- if $redis.bundled.enabled }}{{ $ways = append $ways "redis.bundled.enabled" }}{{ end -}}
{{- if $external.url }}{{ $ways = append $ways "redis.external.url" }}{{ end -}}
{{- if $external.urlSecret.name }}{{ $ways = append $ways "redis.external.urlSecret" }}{{ end -}}
{{- if not $ways -}}
{{- fail "no Redis: set redis.bundled.enabled, redis.external.url or redis.external.urlSecret" -}}
{{- end -}}
{{- if gt (len $ways) 1 -}}
{{- fail (printf "%s are both set: want exactly one Redis" (join " and " $ways)) -}}
{{- end -}}
{{- if and $external.urlSecret.name (not $external.urlSecret.key) -}}
{{- fail "redis.external.urlSecret.key is missing: which key of the Secret holds the URL?" -}}
{{- end -}}
{{- if and .Values.cache.claim .Values.cache.create -}}
{{- fail "cache.claim and cache.create are both set: use an existing claim or create one" -}}
{{- end -}}
{{- with .Values.gateway.autoscaling -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- fail "gateway.autoscaling.minReplicas is over gateway.autoscaling.maxReplicas" -}}
{{- end -}}
{{- if and .enabled (not (dig "requests" "cpu" "" $.Values.gateway.resources)) -}}
{{- fail "gateway.autoscaling needs gateway.resources.requests.cpu: cpuPercent is a share of it" -}}
{{- end -}}
{{- end -}}
{{- range $list, $pools := dict "targets" .Values.targets "drafts" .Values.drafts -}}
{{- $seen := list -}}
{{- range $pools -}}
{{- if has .name $seen }}{{ fail (printf "%s: two pools are named %s" $list .name) }}{{ end -}}
{{- $seen = append $seen .name -}}
{{- end -}}
{{- end -}}
{{- end }}
