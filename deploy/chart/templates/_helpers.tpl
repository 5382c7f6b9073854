{{/* Labels of every object. */}}
{{- define "gpuportal.labels" -}}
app.kubernetes.io/name: gpuportal
app.kubernetes.io/part-of: gpuportal
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The image, by its digest where there is one. */}}
{{- define "gpuportal.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end -}}
{{- end }}

{{/* Image, variables and rights of every container of the portal. */}}
{{- define "gpuportal.container" -}}
image: {{ include "gpuportal.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
envFrom:
  - configMapRef:
      name: gpuportal-settings
  - secretRef:
      name: {{ .Values.secrets.variables | quote }}
      optional: true
securityContext:
{{ include "gpuportal.restricted" . | indent 2 }}
{{- end }}

{{/* A container may do nothing but run. */}}
{{- define "gpuportal.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* What every container of the portal sees. */}}
{{- define "gpuportal.mounts" -}}
- name: secrets
  mountPath: /etc/gpuportal/secrets
  readOnly: true
# Kubeconfigs and CA files that the catalog and DATABASE_URL name.
- name: credentials
  mountPath: /etc/gpuportal/credentials
  readOnly: true
- name: var
  mountPath: /var/lib/gpuportal
- name: tmp
  mountPath: /tmp
{{- end }}

{{/* What those see besides that do the work. */}}
{{- define "gpuportal.workMounts" -}}
{{ include "gpuportal.mounts" . }}
- name: account-token
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
- name: exports
  mountPath: /var/lib/gpuportal-exports
{{- range .Values.secrets.kubeconfigs }}
- name: {{ . | quote }}
  mountPath: /etc/gpuportal/kubeconfigs/{{ . }}
  readOnly: true
{{- end }}
{{- if .Values.execPrograms }}
- name: programs
  mountPath: /opt/gpuportal-programs
  readOnly: true
{{- end }}
{{- end }}

{{/* Where pods run, and their pull secrets. */}}
{{- define "gpuportal.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- end }}

{{/* What all pods of the portal have in common. */}}
{{- define "gpuportal.pod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
# The token is the one in the volumes, which ends after an hour and is renewed by the kubelet.
automountServiceAccountToken: false
enableServiceLinks: false
{{- include "gpuportal.placement" . }}
{{- end }}

{{/* No process starts on tables of another version. */}}
{{- define "gpuportal.awaitMigrations" -}}
- name: await-migrations
  command:
    - sh
    - -c
    - until python manage.py migrate --check --verbosity 0; do sleep 5; done
  resources:
    requests: {cpu: 50m, memory: 160Mi}
    limits: {memory: 512Mi}
{{ include "gpuportal.container" . | indent 2 }}
  volumeMounts:
{{ include "gpuportal.mounts" . | indent 4 }}
{{- end }}

{{/* Brings the programs that kubeconfigs name, each from an image that has it. */}}
{{- define "gpuportal.execPrograms" -}}
{{- range .Values.execPrograms }}
- name: {{ .name | quote }}
  image: {{ .image | quote }}
  command: {{ toJson .command }}
  resources:
    requests: {cpu: 10m, memory: 32Mi}
    limits: {memory: 256Mi}
  securityContext:
{{ include "gpuportal.restricted" $ | indent 4 }}
  volumeMounts:
    - name: programs
      mountPath: /opt/gpuportal-programs
{{- end }}
{{- end }}

{{/* The volumes of all pods of the portal. */}}
{{- define "gpuportal.volumes" -}}
- name: secrets
  secret:
    secretName: {{ .Values.secrets.portal | quote }}
    defaultMode: 0440
- name: credentials
  secret:
    secretName: {{ .Values.secrets.credentials | quote }}
    optional: true
    defaultMode: 0440
- name: var
  emptyDir:
    sizeLimit: 1Gi
- name: tmp
  emptyDir:
    sizeLimit: 1Gi
{{- end }}

{{/* The volumes of those that do the work. */}}
{{- define "gpuportal.workVolumes" -}}
{{ include "gpuportal.volumes" . }}
- name: account-token
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                fieldPath: metadata.namespace
- name: exports
{{- if .Values.exportsVolume.enabled }}
  persistentVolumeClaim:
    claimName: {{ .Values.exportsVolume.existingClaim | default "gpuportal-exports" | quote }}
{{- else }}
  emptyDir:
    sizeLimit: 5Gi
{{- end }}
{{- range .Values.secrets.kubeconfigs }}
- name: {{ . | quote }}
  secret:
    secretName: {{ . | quote }}
    # A cluster whose Secret is missing must not keep the others from being watched.
    optional: true
    defaultMode: 0440
{{- end }}
{{- if .Values.execPrograms }}
- name: programs
  emptyDir:
    sizeLimit: 1Gi
{{- end }}
{{- end }}

{{/* What only pods that change quotas hold: the token of the account, kubeconfigs of others. */}}
{{- define "gpuportal.writerMount" -}}
{{- if .Values.quotaWriter.enabled -}}
- name: quota-writer-token
  mountPath: /var/run/secrets/gpuportal/quota-writer
  readOnly: true
{{- range .Values.quotaWriter.kubeconfigs }}
- name: {{ . | quote }}
  mountPath: /etc/gpuportal/kubeconfigs/{{ . }}
  readOnly: true
{{- end }}
{{- end }}
{{- end }}

{{- define "gpuportal.writerVolume" -}}
{{- if .Values.quotaWriter.enabled -}}
- name: quota-writer-token
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
{{- range .Values.quotaWriter.kubeconfigs }}
- name: {{ . | quote }}
  secret:
    secretName: {{ . | quote }}
    optional: true
    defaultMode: 0440
{{- end }}
{{- end }}
{{- end }}

{{/* The account of the pods that change quotas. */}}
{{- define "gpuportal.writerAccount" -}}
{{- if .Values.quotaWriter.enabled -}}
gpuportal-quota-writer
{{- else -}}
gpuportal-reader
{{- end -}}
{{- end }}

{{/* A change of a variable starts pods anew. */}}
{{- define "gpuportal.annotations" -}}
gpuportal.io/settings: {{ include "gpuportal.settings" . | sha256sum | quote }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The variables of all processes; what `settings` names wins. */}}
{{- define "gpuportal.settings" -}}
{{- $settings := dict -}}
{{- $_ := set $settings "GPUPORTAL_ENV" "production" -}}
{{- $_ := set $settings "GPUPORTAL_VAR_DIR" "/var/lib/gpuportal" -}}
{{- $_ := set $settings "GPUPORTAL_EXPORTS_DIR" "/var/lib/gpuportal-exports" -}}
{{- $_ := set $settings "GPUPORTAL_BEHIND_PROXY" "yes" -}}
{{- $_ := set $settings "GPUPORTAL_LOG_LEVEL" "INFO" -}}
{{- $_ := set $settings "GPUPORTAL_LOG_FORMAT" "json" -}}
{{- $_ := set $settings "GPUPORTAL_ACCESS_LOG" "yes" -}}
{{- $_ := set $settings "GPUPORTAL_METRICS_PORT" "9464" -}}
{{- $_ := set $settings "GPUPORTAL_ALLOWED_HOSTS" .Values.host -}}
{{- $_ := set $settings "GPUPORTAL_URL" (printf "https://%s" .Values.host) -}}
{{- $_ := set $settings "GPUPORTAL_SECRET_KEY_FILE" "/etc/gpuportal/secrets/secret-key" -}}
{{- $_ := set $settings "DATABASE_URL_FILE" "/etc/gpuportal/secrets/database-url" -}}
{{- $_ := set $settings "CELERY_BROKER_URL_FILE" "/etc/gpuportal/secrets/broker-url" -}}
{{- $_ := set $settings "CACHE_URL_FILE" "/etc/gpuportal/secrets/cache-url" -}}
{{- range $name, $value := .Values.settings }}
{{- /* As JSON: 1000000 alone is 1e+06 here. */ -}}
{{- $_ := set $settings $name (ternary $value (toJson $value) (kindIs "string" $value) | toString) -}}
{{- end -}}
{{ toYaml $settings }}
{{- end }}
