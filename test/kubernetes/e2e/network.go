// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "net/netip"

// podNetwork holds the pods' addresses. Each node has 256 of them.
var podNetwork = netip.MustParsePrefix("10.244.0.0/16")

// machine is the address that everything but pods has beside 127.0.0.1.
var machine = netip.MustParseAddr("10.244.255.254")

// nodePods are the addresses of one node's pods.
func nodePods(node int) netip.Prefix {
	address := podNetwork.Addr().As4()
	address[2] = byte(node)
	return netip.PrefixFrom(netip.AddrFrom4(address), 24)
}
