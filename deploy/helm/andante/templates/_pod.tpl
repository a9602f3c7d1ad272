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
