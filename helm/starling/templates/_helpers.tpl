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
  name    ingest, normalizer, segmenter, projector, api, delivery, deploy, profiles or lake
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
{{- default (include "starling.component.fullname" .) .values.serviceAccount.name }}
{{- else }}
{{- default "default" .values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The service account of the API's pods; the backfill's RoleBinding names it. */}}
{{- define "starling.api.serviceAccountName" -}}
{{- include "starling.component.serviceAccountName" (dict "root" . "name" "api" "values" .Values.api) }}
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

{{/* The connections as environment variables. Credentials are in secrets. */}}
{{- define "starling.connectionEnvironment" -}}
STARLING_KAFKA__BROKERS: {{ .Values.kafka.brokers | quote }}
STARLING_REGISTRY__URL: {{ .Values.schemaRegistry.url | quote }}
{{- end }}

{{- define "starling.cassandraEnvironment" -}}
STARLING_CASSANDRA__CONTACT_POINTS: {{ .Values.cassandra.contactPoints | quote }}
STARLING_CASSANDRA__PORT: {{ .Values.cassandra.port | int | quote }}
STARLING_CASSANDRA__KEYSPACE: {{ .Values.cassandra.keyspace | quote }}
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

{{/* auto -> keda when the cluster has its custom resource, else hpa. */}}
{{- define "starling.autoscaler" -}}
{{- $kind := dig "autoscaling" "kind" "hpa" .values }}
{{- if not (dig "autoscaling" "enabled" false .values) }}none
{{- else if eq $kind "auto" }}{{ ternary "keda" "hpa" (.root.Capabilities.APIVersions.Has "keda.sh/v1alpha1") }}
{{- else }}{{ $kind }}
{{- end }}
{{- end }}
