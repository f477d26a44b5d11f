#pragma once

#include <memory>
#include <vector>

#include "framework/net/link.h"
#include "framework/sync/frame_relay.h"
#include "framework/sync/membership.h"

namespace strait::sync {

// The links between the leaders of groups as every member of a group uses them, so that all of its
// engines see the same frames and come to the same bits. On the leader they are `links`, by
// replica, and what they receive goes to the relay, too. On the other members they receive what the
// leader has received, and what is sent over them goes nowhere: the leader sends the same.
//
// The relay outlives the links. Threads: one uses all links of a member; abort() and state() may be
// called by any.
std::vector<std::unique_ptr<net::Link>> leader_links(std::vector<std::unique_ptr<net::Link>> links,
                                                     FrameRelay& relay);
// `leaders`: of all groups. By replica, null at the own leader and at those that lead none.
// `to_leader`: what a follower waits for. It outlives the links.
std::vector<std::unique_ptr<net::Link>> follower_links(const Membership& leaders, FrameRelay& relay,
                                                       const net::Link* to_leader);

}  // namespace strait::sync
