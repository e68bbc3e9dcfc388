//go:build tools

// Package s3server names the command that tools/s3_server.sh builds, so that go.mod and go.sum pin what it imports.
package s3server

import _ "github.com/versity/versitygw/cmd/versitygw"
