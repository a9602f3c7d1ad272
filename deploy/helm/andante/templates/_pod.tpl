{{/* Parts of pods that both shapes have. */}}

{{- define "andante.hardened" -}}
runAsUser: 65532
runAsGroup: 65532
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "andante.container" -}}
image: {{ include "andante.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end -}}

{{/* Variables of andante for what both shapes have: state, interception, the store. */}}
{{- define "andante.env" -}}
- {name: ANDANTE_STATE, value: /state/limits.redb}
{{- with .Values.intercept }}
- {name: ANDANTE_INTERCEPT, value: {{ join "," . | quote }}}
{{- end }}
{{- if .Values.store.urlSecret }}
- name: ANDANTE_STORE
  valueFrom:
    secretKeyRef: {name: {{ .Values.store.urlSecret }}, key: url}
{{- else if .Values.store.valkey.enabled }}
- {name: ANDANTE_STORE, value: "redis://{{ include "andante.fullname" . }}-store:6379"}
{{- else if .Values.store.url }}
- {name: ANDANTE_STORE, value: {{ .Values.store.url | quote }}}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Seconds of `drain` in the configuration, rounded down; 120 without it. The units are those of andante's durations. */}}
{{- define "andante.drain" -}}
{{- $seconds := 120 -}}
{{- $units := dict "s" 1 "sec" 1 "secs" 1 "second" 1 "seconds" 1 "m" 60 "min" 60 "mins" 60 "minute" 60 "minutes" 60 "h" 3600 "hr" 3600 "hrs" 3600 "hour" 3600 "hours" 3600 "d" 86400 "day" 86400 "days" 86400 -}}
{{- with regexFind "(?m)^[ \t]*drain[ \t]*=[ \t]*[\"'][^\"']*[\"']" .Values.config -}}
{{- $seconds = 0 -}}
{{- range regexFindAll "[0-9]+ *[A-Za-z]+" . -1 -}}
{{- $seconds = add $seconds (mul (regexFind "[0-9]+" . | int) (get $units (regexFind "[A-Za-z]+" .) | default 0)) -}}
{{- end -}}
{{- end -}}
{{- $seconds -}}
{{- end -}}

{{/* The time from SIGTERM to SIGKILL, which has to outlast a drain. */}}
{{- define "andante.gracePeriod" -}}
{{- $drain := include "andante.drain" . | int -}}
{{- $given := int .Values.terminationGracePeriodSeconds -}}
{{- if lt $given (add $drain 10 | int) -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, and requests would be cut off: `drain` of the configuration is %d s, so set it to at least %d, or lower `drain`" $given $drain (add $drain 10)) -}}
{{- end -}}
{{- $given -}}
{{- end -}}
