package wire

import "slices"

// Revisions are the revisions of MCP, oldest first.
var Revisions = [...]string{Rev2024, Rev2025March, Rev2025June, Rev2025, Rev2026}

// The revisions by name. Rev2026 ("modern") has no sessions and no resuming;
// Rev2025 is the newest that has.
const (
	Rev2024      = "2024-11-05"
	Rev2025March = "2025-03-26"
	Rev2025June  = "2025-06-18"
	Rev2025      = "2025-11-25"
	Rev2026      = "2026-07-28"
)

// KnownRevision tells whether there is such a revision.
func KnownRevision(v string) bool { return slices.Contains(Revisions[:], v) }

// Modern tells whether the revision is one without sessions.
func Modern(v string) bool { return AtLeast(v, Rev2026) }

// AtLeast tells whether revision v is least or a later one, known or not. What
// is not a date is not at least anything.
func AtLeast(v, least string) bool { return isDate(v) && v >= least }

func isDate(v string) bool {
	if len(v) != 10 {
		return false
	}
	for i := range len(v) {
		if i == 4 || i == 7 {
			if v[i] != '-' {
				return false
			}
		} else if v[i] < '0' || v[i] > '9' {
			return false
		}
	}
	return true
}
