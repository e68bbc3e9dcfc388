"""The email channel: mails by SMTP, signed with DKIM."""
