{{/* Name of the chart's objects, without the release. */}}
{{- define "starling.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* Prefix of every object; 40 characters leave room for the longest suffix. */}}
{{- define "starling.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Labels of every object. */}}
{{- define "starling.labels" -}}
app.kubernetes.io/name: {{ include "starling.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: starling
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The labels of a release that never change. */}}
{{- define "starling.releaseSelector" -}}
app.kubernetes.io/name: {{ include "starling.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/*
A component is a dictionary:

  root    the top-level context
  name    ingest, normalizer, segmenter, projector, api, delivery, feeds, messenger, broadcaster, audience, email, tracker, scaler, deploy,
          profiles, lake, views, lake-upkeep, exports, audience-report or campaign-report
  values  its block of values.yaml
*/}}
{{- define "starling.component.labels" -}}
{{ include "starling.labels" .root }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{- define "starling.component.selector" -}}
{{ include "starling.releaseSelector" .root }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{- define "starling.component.fullname" -}}
{{- printf "%s-%s" (include "starling.fullname" .root) .name }}
{{- end }}

{{- define "starling.component.serviceAccountName" -}}
{{- if .values.serviceAccount.create }}
{{- default (include "starling.component.fullname" (dict "root" .root "name" (default .name .account))) .values.serviceAccount.name }}
{{- else }}
{{- default "default" .values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* registry/repository:tag, or registry/repository@digest. */}}
{{- define "starling.component.image" -}}
{{- $image := .values.image }}
{{- $registry := .root.Values.image.registry }}
{{- $reference := ternary (printf "@%s" $image.digest) (printf ":%s" (default .root.Chart.AppVersion (default .root.Values.image.tag $image.tag))) (ne (default "" $image.digest) "") }}
{{- printf "%s%s%s" (ternary (printf "%s/" $registry) "" (ne $registry "")) $image.repository $reference }}
{{- end }}

{{- define "starling.component.annotations" -}}
{{- $annotations := merge (dict) (default (dict) .values.annotations) (default (dict) .root.Values.commonAnnotations) }}
{{- with $annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/*
The values of the connections of one component, as YAML: {service} in the user of the broker and in its secret is the name that
`starling deploy acls` gives the component. `helm test` has the rights of an auditor, and the jobs that read nothing but the lake those of
the lake job. Input: root and name.
*/}}
{{- define "starling.connections" -}}
{{- $service := get (dict "test" "auditor" "lake-upkeep" "lake" "exports" "lake") .name | default .name }}
{{- $kafka := deepCopy .root.Values.kafka }}
{{- range $key := tuple "username" "existingSecret" "passwordKey" }}
{{- $_ := set $kafka.security $key (replace "{service}" $service (get $kafka.security $key)) }}
{{- end }}
{{- toYaml (dict "Values" (dict "kafka" $kafka "schemaRegistry" .root.Values.schemaRegistry)) }}
{{- end }}

{{/* The connections as environment variables. Credentials are in secrets. Input: `starling.connections`. */}}
{{- define "starling.connectionEnvironment" -}}
STARLING_KAFKA__BROKERS: {{ .Values.kafka.brokers | quote }}
{{- with .Values.kafka.security }}
{{- if ne .protocol "PLAINTEXT" }}
STARLING_KAFKA__SECURITY_PROTOCOL: {{ .protocol | quote }}
{{- end }}
{{- if hasPrefix "SASL" .protocol }}
STARLING_KAFKA__SASL_MECHANISM: {{ .mechanism | quote }}
STARLING_KAFKA__SASL_USERNAME: {{ .username | quote }}
{{- end }}
{{- if .caSecret }}
STARLING_KAFKA__SSL_CA_FILE: /etc/starling/kafka/ca/ca.crt
{{- end }}
{{- if .certificateSecret }}
STARLING_KAFKA__SSL_CERTIFICATE_FILE: /etc/starling/kafka/certificate/tls.crt
STARLING_KAFKA__SSL_KEY_FILE: /etc/starling/kafka/certificate/tls.key
{{- end }}
{{- if not .checkHostname }}
STARLING_KAFKA__SSL_CHECK_HOSTNAME: "false"
{{- end }}
{{- end }}
STARLING_REGISTRY__URL: {{ .Values.schemaRegistry.url | quote }}
{{- with .Values.schemaRegistry.security }}
{{- if .caSecret }}
STARLING_REGISTRY__SSL_CA_FILE: /etc/starling/registry/ca/ca.crt
{{- end }}
{{- if .certificateSecret }}
STARLING_REGISTRY__SSL_CERTIFICATE_FILE: /etc/starling/registry/certificate/tls.crt
STARLING_REGISTRY__SSL_KEY_FILE: /etc/starling/registry/certificate/tls.key
{{- end }}
{{- end }}
{{- end }}

{{/* The values of the connections with the user who administers access to the broker, as YAML. */}}
{{- define "starling.acls.root" -}}
{{- $kafka := deepCopy .Values.kafka }}
{{- if $kafka.acls.username }}
{{- $_ := set $kafka "security" (merge (pick $kafka.acls "username" "existingSecret" "passwordKey") $kafka.security) }}
{{- end }}
{{- toYaml (dict "Values" (dict "kafka" $kafka "schemaRegistry" .Values.schemaRegistry)) }}
{{- end }}

{{/* The credentials for the broker and the registry, as variables of a container. Input: `starling.connections`. */}}
{{- define "starling.connectionCredentials" -}}
{{- with .Values.kafka.security }}
{{- if hasPrefix "SASL" .protocol }}
- name: STARLING_KAFKA__SASL_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret }}
      key: {{ .passwordKey }}
{{- end }}
{{- end }}
{{- with .Values.schemaRegistry.security }}
{{- if .existingSecret }}
- name: STARLING_REGISTRY__USERNAME
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret }}
      key: {{ .usernameKey }}
- name: STARLING_REGISTRY__PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret }}
      key: {{ .passwordKey }}
{{- end }}
{{- end }}
{{- end }}

{{/*
The certificates for a server, as mounts of a container and as volumes of its pod. Input: name, which is also the directory, and
security with caSecret, caKey and certificateSecret.
*/}}
{{- define "starling.certificates.mounts" -}}
{{- if .security.caSecret }}
- name: {{ .name }}-ca
  mountPath: /etc/starling/{{ .name }}/ca
  readOnly: true
{{- end }}
{{- if .security.certificateSecret }}
- name: {{ .name }}-certificate
  mountPath: /etc/starling/{{ .name }}/certificate
  readOnly: true
{{- end }}
{{- end }}

{{- define "starling.certificates.volumes" -}}
{{- if .security.caSecret }}
- name: {{ .name }}-ca
  secret:
    secretName: {{ .security.caSecret }}
    items:
      - key: {{ .security.caKey }}
        path: ca.crt
{{- end }}
{{- if .security.certificateSecret }}
- name: {{ .name }}-certificate
  secret:
    secretName: {{ .security.certificateSecret }}
{{- end }}
{{- end }}

{{/* Input: kind (mounts or volumes), root, cassandra: whether the pod connects to it, and isolated: whether it connects to nothing else. */}}
{{- define "starling.certificates" -}}
{{- $template := printf "starling.certificates.%s" .kind }}
{{- if not .isolated }}
{{- include $template (dict "name" "kafka" "security" .root.Values.kafka.security) }}
{{- include $template (dict "name" "registry" "security" .root.Values.schemaRegistry.security) }}
{{- end }}
{{- if .cassandra }}
{{- include $template (dict "name" "cassandra" "security" .root.Values.cassandra.security) }}
{{- end }}
{{- end }}

{{- define "starling.cassandraEnvironment" -}}
STARLING_CASSANDRA__CONTACT_POINTS: {{ .Values.cassandra.contactPoints | quote }}
STARLING_CASSANDRA__PORT: {{ .Values.cassandra.port | int | quote }}
STARLING_CASSANDRA__KEYSPACE: {{ .Values.cassandra.keyspace | quote }}
{{- with .Values.cassandra.security }}
{{- if .ssl }}
STARLING_CASSANDRA__SSL: "true"
{{- if .caSecret }}
STARLING_CASSANDRA__SSL_CA_FILE: /etc/starling/cassandra/ca/ca.crt
{{- end }}
{{- if .certificateSecret }}
STARLING_CASSANDRA__SSL_CERTIFICATE_FILE: /etc/starling/cassandra/certificate/tls.crt
STARLING_CASSANDRA__SSL_KEY_FILE: /etc/starling/cassandra/certificate/tls.key
{{- end }}
{{- if not .checkHostname }}
STARLING_CASSANDRA__SSL_CHECK_HOSTNAME: "false"
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether Cassandra needs a login. */}}
{{- define "starling.cassandra.secured" -}}
{{- if or .Values.cassandra.auth.existingSecret .Values.cassandra.auth.username }}true{{ end }}
{{- end }}

{{- define "starling.cassandra.secretName" -}}
{{- default (printf "%s-cassandra" (include "starling.fullname" .)) .Values.cassandra.auth.existingSecret }}
{{- end }}

{{/* Two variables of a container from a secret; `secret` is its name. */}}
{{- define "starling.cassandra.credentials" -}}
- name: STARLING_CASSANDRA__USER
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: {{ .root.Values.cassandra.auth.usernameKey }}
- name: STARLING_CASSANDRA__PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: {{ .root.Values.cassandra.auth.passwordKey }}
{{- end }}

{{- define "starling.writeKeys.secretName" -}}
{{- default (printf "%s-write-keys" (include "starling.fullname" .)) .Values.ingest.writeKeys.existingSecret }}
{{- end }}

{{- define "starling.secretKeys.secretName" -}}
{{- default (printf "%s-secret-keys" (include "starling.fullname" .)) .Values.secretKeys.existingSecret }}
{{- end }}

{{/* The variable with the keys that encrypt secrets, for the components that encrypt or decrypt: the API, delivery, audience sync and the tracker. */}}
{{- define "starling.secretKeys" -}}
variable: STARLING_SECRETS__KEYS
secret: {{ include "starling.secretKeys.secretName" . }}
key: {{ .Values.secretKeys.key }}
{{- end }}

{{- define "starling.linkKeys.secretName" -}}
{{- default (printf "%s-link-keys" (include "starling.fullname" .)) .Values.linkKeys.existingSecret }}
{{- end }}

{{/* The variable with the keys of the links in mails, for the tracker and email. */}}
{{- define "starling.linkKeys" -}}
variable: STARLING_LINKS__KEYS
secret: {{ include "starling.linkKeys.secretName" . }}
key: {{ .Values.linkKeys.key }}
{{- end }}

{{- define "starling.tokens.secretName" -}}
{{- default (printf "%s-tokens" (include "starling.fullname" .)) .Values.api.tokens.existingSecret }}
{{- end }}

{{/* Environment variables -> text, in a config map. Numbers of YAML keep their digits, lists and objects become JSON. */}}
{{- define "starling.environment" -}}
{{- range $name, $value := . }}
{{- if or (kindIs "map" $value) (kindIs "slice" $value) }}
{{ $name }}: {{ toJson $value | quote }}
{{- else if and (kindIs "float64" $value) (eq (float64 (int64 $value)) $value) }}
{{ $name }}: {{ int64 $value | quote }}
{{- else }}
{{ $name }}: {{ toString $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether a component records traces. */}}
{{- define "starling.traced" -}}
{{- if has . (list "ingest" "normalizer" "segmenter" "delivery" "messenger" "email") }}true{{ end }}
{{- end }}

{{/* auto -> keda when the cluster has its custom resource, else hpa. */}}
{{- define "starling.autoscaler" -}}
{{- $kind := dig "autoscaling" "kind" "hpa" .values }}
{{- if not (dig "autoscaling" "enabled" false .values) }}none
{{- else if eq $kind "auto" }}{{ ternary "keda" "hpa" (.root.Capabilities.APIVersions.Has "keda.sh/v1alpha1") }}
{{- else }}{{ $kind }}
{{- end }}
{{- end }}

{{/* Whether the scaler changes the replicas of a stage. Input: root and name. */}}
{{- define "starling.scaled" -}}
{{- if and .root.Values.scaler.enabled (get .root.Values .name).enabled (get .root.Values.scaler .name).enabled }}true{{ end }}
{{- end }}

{{/* Binds the role of a component to its service account. */}}
{{- define "starling.roleBinding" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ include "starling.component.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "starling.component.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "starling.component.fullname" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "starling.component.serviceAccountName" . }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* The Spark jobs that run by a schedule, as YAML: key under `spark.scheduled` -> component. */}}
{{- define "starling.scheduled" -}}
{{- toYaml (dict "lakeUpkeep" "lake-upkeep" "exports" "exports" "audienceReport" "audience-report" "campaignReport" "campaign-report") }}
{{- end }}

{{/* The jobs that the API starts: block of the values -> component. */}}
{{- define "starling.started" -}}
{{- toYaml (dict "backfill" "backfill" "imports" "imports" "sqlTraits" "sql-traits") }}
{{- end }}

{{/* The paths of a Spark job's jars, as of STARLING_SPARK_JARS. Input: root, and iceberg (true: those of the lake too). */}}
{{- define "starling.sparkJars" -}}
{{- $spark := .root.Values.spark }}
{{- $paths := list }}
{{- range ternary (concat $spark.jars $spark.icebergJars) $spark.jars .iceberg }}
{{- $paths = append $paths (printf "%s/%s" (trimSuffix "/" $spark.jarDirectory) .) }}
{{- end }}
{{- join ":" $paths }}
{{- end }}
