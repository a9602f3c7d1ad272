{{- define "andante.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains "andante" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-andante" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that select pods: they never change. */}}
{{- define "andante.selector" -}}
app.kubernetes.io/name: andante
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "andante.labels" -}}
{{ include "andante.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: andante
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "andante.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Not empty with a store of any kind. */}}
{{- define "andante.shared" -}}
{{- if or .Values.store.url .Values.store.urlSecret .Values.store.valkey.enabled }}yes{{ end -}}
{{- end -}}
