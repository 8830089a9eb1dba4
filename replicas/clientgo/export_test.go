package clientgo

// Expecting returns how many owners have expectations outstanding.
func (c *Controller) Expecting() int {
	n := 0
	for range c.reconciler.Expectations.All() {
		n++
	}
	return n
}
