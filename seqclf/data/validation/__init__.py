"""Row checks and the quarantine of refused rows."""
