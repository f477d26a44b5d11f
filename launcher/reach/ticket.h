#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace strait::reach {

// What a plain TCP connection of ours says first: what it wants, and the token that lets it in and
// nobody else. It guards sockets only. What a relayed link carries stays sealed from end to end,
// and measurements carry nothing.
struct Ticket {
  enum class Wish : char {
    relay_binds = 'b',  // to be joined with the end that dials; its stage listens
    relay_dials = 'd',  // the other end
    greet = 'g',        // to hear who is there
    echo = 'e',         // its words back
    receive = 'r',      // bytes, as many as come
    send = 's',         // to be told how fast its bytes come
  };

  static std::string random_token();  // 32 hexadecimal digits, from the kernel's generator

  std::string token;
  Wish wish = Wish::greet;
};

// What the relay says to the end that binds once the other is there.
inline constexpr std::byte kRelayGo{'g'};

inline constexpr std::size_t kTicketBytes = 48;
using TicketBytes = std::array<std::byte, kTicketBytes>;

TicketBytes to_bytes(const Ticket& ticket);
std::optional<Ticket> parse_ticket(std::span<const std::byte> bytes);

}  // namespace strait::reach
