"""The channel push: one notification a device, by web push, FCM or APNs."""
