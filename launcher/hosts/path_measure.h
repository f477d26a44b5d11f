#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/net/endpoint.h"
#include "launcher/hosts/tcp_socket.h"

// Measurements against a ProbeServer. They block; PathError: no answer.
namespace strait::hosts {

struct DialTarget {
  std::uint32_t host = 0;  // that must answer there
  net::Endpoint place;
};

struct DialResult {
  std::string trouble;  // empty: the right host answered
  double seconds = 0;   // to connect: a round trip
};

// Tries all at once, so that it takes no longer than the slowest, or the limit.
std::vector<DialResult> dial_all(const std::vector<DialTarget>& targets, const std::string& token,
                                 double limit_seconds);

// The shortest of `count` round trips of a few bytes.
double round_trip(const net::Endpoint& place, const std::string& token, int count,
                  Instant deadline);

enum class FlowDirection : std::uint8_t { from_there, to_there };

// Bytes per second, of so many connections side by side, counted for so long.
double flow_rate(const net::Endpoint& place, const std::string& token, FlowDirection direction,
                 int connections, double seconds, Instant deadline);

}  // namespace strait::hosts
