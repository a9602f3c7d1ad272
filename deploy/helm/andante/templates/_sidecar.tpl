{{/*
Parts of a pod with andante beside the worker. Another chart, with andante among its dependencies, includes them into a pod
template of its own, with the dependency's context:
  {{- include "andante.sidecar.initContainers" .Subcharts.andante | nindent 8 }}
*/}}

{{/* Its container starts first and is ready before the worker starts, and ends after it. */}}
{{- define "andante.sidecar.initContainers" -}}
- name: andante
  {{- include "andante.container" . | nindent 2 }}
  restartPolicy: Always
  args: [serve, --config, /etc/andante/andante.toml]
  env:
    - {name: ANDANTE_DATA, value: /data}
    {{- if .Values.sidecar.metrics }}
    # For Prometheus, which comes from outside of the pod. andante warns about it.
    - {name: ANDANTE_ADMIN, value: "0.0.0.0:9128"}
    {{- end }}
    {{- include "andante.env" . | nindent 4 }}
  {{- if .Values.sidecar.metrics }}
  ports:
    - {name: andante-admin, containerPort: 9128}
  {{- end }}
  # From inside, so that the admin pages may stay on loopback. `health` fails while a store is away, and a restart would end
  # all waiting requests; `status` fails only when andante does not answer.
  startupProbe:
    exec: {command: [/usr/local/bin/andante, status, --json]}
    periodSeconds: 1
    timeoutSeconds: 3
    failureThreshold: 30
  livenessProbe:
    exec: {command: [/usr/local/bin/andante, status, --json]}
    periodSeconds: 20
    timeoutSeconds: 3
    failureThreshold: 6
  resources:
    {{- toYaml .Values.sidecar.resources | nindent 4 }}
  securityContext:
    {{- include "andante.hardened" . | nindent 4 }}
  volumeMounts:
    - {name: andante-config, mountPath: /etc/andante, readOnly: true}
    - {name: andante-data, mountPath: /data}
    - {name: andante-state, mountPath: /state}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- if .Values.intercept }}
# Starts once andante is up, and so has a CA: writes the certificate, without its key, to where the worker sees it.
- name: andante-ca-bundle
  {{- include "andante.container" . | nindent 2 }}
  args: [ca, bundle, --out, /trust/bundle.pem]
  env:
    - {name: ANDANTE_DATA, value: /data}
  resources:
    requests: {cpu: 10m, memory: 16Mi}
    limits: {memory: 64Mi}
  securityContext:
    {{- include "andante.hardened" . | nindent 4 }}
  volumeMounts:
    - {name: andante-data, mountPath: /data}
    - {name: andante-trust, mountPath: /trust}
{{- end }}
{{- end -}}

{{- define "andante.sidecar.volumes" -}}
- name: andante-config
  configMap: {name: {{ include "andante.fullname" . }}}
# The CA's key. In memory, and gone with the pod.
- name: andante-data
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
# The state of 2,000 hosts takes 3.3 MB, and as much again while it is written. A pod that exceeds this is evicted. It
# outlives the container, and ends with the pod.
- name: andante-state
  emptyDir: {sizeLimit: 256Mi}
{{- if .Values.intercept }}
- name: andante-trust
  emptyDir: {sizeLimit: 4Mi}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Of the worker's container. */}}
{{- define "andante.sidecar.envFrom" -}}
- configMapRef: {name: {{ include "andante.fullname" . }}-worker}
{{- end -}}

{{/* Of the worker's container; empty if nothing is intercepted. */}}
{{- define "andante.sidecar.volumeMounts" -}}
{{- if .Values.intercept -}}
- {name: andante-trust, mountPath: /trust, readOnly: true}
{{- end -}}
{{- end -}}
