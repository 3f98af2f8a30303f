{{- define "muster.labels" -}}
app.kubernetes.io/part-of: muster
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | include "muster.label" | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | include "muster.label" }}
{{- end -}}

{{- /* A version as the value of a label: no longer than 63, and without the + of build metadata. */ -}}
{{- define "muster.label" -}}
{{ . | replace "+" "_" | trunc 63 | trimAll "-_." }}
{{- end -}}

{{- /* What follows an image's name: a tag, or a digest. */ -}}
{{- define "muster.version" -}}
{{ hasPrefix "sha256:" . | ternary "@" ":" }}{{ . }}
{{- end -}}

{{- define "muster.broker" -}}
{{- if and .Values.rabbitmq.enabled (gt (int .Values.rabbitmq.replicas) 1) }}
{{- range $at := until (int .Values.rabbitmq.replicas) }}{{ if $at }},{{ end }}rabbitmq-{{ $at }}.rabbitmq:5672{{ end }}
{{- else if .Values.rabbitmq.enabled }}rabbitmq:5672{{ else if .Values.rabbitmq.hosts }}{{ join "," .Values.rabbitmq.hosts }}{{ else }}{{ .Values.rabbitmq.host }}:{{ .Values.rabbitmq.port }}{{ end }}
{{- end -}}

{{- /* The password of a service's user: what the Secret has, or a new one of 256 bits and more. */ -}}
{{- define "muster.kept" -}}
{{- $found := lookup "v1" "Secret" .namespace .secret -}}
{{- $data := get ($found | default dict) "data" | default dict -}}
{{- if hasKey $data .key -}}
{{ get $data .key | b64dec }}
{{- else -}}
{{ randAlphaNum 48 }}
{{- end -}}
{{- end -}}

{{- /* A password as RabbitMQ keeps it: base64 of a salt of four bytes and the SHA-256 of both. Sprig
       has the SHA-256 in hexadecimal only: three digits of it are two of base64. */ -}}
{{- define "muster.hashed" -}}
{{- $salt := . | sha256sum | trunc 4 -}}
{{- $hex := printf "%x%s" $salt (printf "%s%s" $salt . | sha256sum) -}}
{{- $values := dict "0" 0 "1" 1 "2" 2 "3" 3 "4" 4 "5" 5 "6" 6 "7" 7 "8" 8 "9" 9 "a" 10 "b" 11 "c" 12 "d" 13 "e" 14 "f" 15 -}}
{{- $alphabet := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" -}}
{{- range $at := untilStep 0 72 3 -}}
{{- $first := get $values (substr (int $at) (int (add $at 1)) $hex) -}}
{{- $second := get $values (substr (int (add $at 1)) (int (add $at 2)) $hex) -}}
{{- $third := get $values (substr (int (add $at 2)) (int (add $at 3)) $hex) -}}
{{- $bits := add (mul 256 $first) (mul 16 $second) $third -}}
{{- $high := int (div $bits 64) -}}
{{- $low := int (mod $bits 64) -}}
{{- substr $high (int (add $high 1)) $alphabet -}}
{{- substr $low (int (add $low 1)) $alphabet -}}
{{- end -}}
{{- end -}}
