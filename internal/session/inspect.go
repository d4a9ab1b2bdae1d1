package session

import "time"

// Vitals is what only the process that runs a session knows of it.
type Vitals struct {
	Seen    time.Time // last sign of life
	Child   bool      // its server process runs
	Readers map[string][]Seat
}

// Seat is a connection to a stream, as it is shown.
type Seat struct {
	Place uint64
	Spare bool
}

// InMemory tells about the sessions in memory, by their name in the log.
func (m *Manager) InMemory() map[string]Vitals {
	all := map[string]Vitals{}
	for _, s := range m.all() {
		l := Vitals{Seen: time.Unix(0, s.lastSign.Load()), Readers: map[string][]Seat{}}
		s.mu.Lock()
		l.Child = s.child != nil
		s.mu.Unlock()
		for _, st := range s.liveStreams() {
			if seats := st.shown(); len(seats) > 0 {
				l.Readers[st.key.Stream] = seats
			}
		}
		all[s.name] = l
	}
	return all
}

func (st *stream) shown() []Seat {
	st.mu.Lock()
	defer st.mu.Unlock()
	var seats []Seat
	for i, r := range st.seats {
		seats = append(seats, Seat{Place: r.place, Spare: i < len(st.seats)-1})
	}
	return seats
}
