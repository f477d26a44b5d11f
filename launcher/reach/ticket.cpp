#include "launcher/reach/ticket.h"

#include <cstring>
#include <string_view>

#include "framework/net/run_id.h"

namespace strait::reach {
namespace {

constexpr std::string_view kTicketMagic = "strait-reach/1 ";  // then the wish, then the token
constexpr std::string_view kWishes = "bdgers";
constexpr std::size_t kTokenDigits = 32;
static_assert(kTicketMagic.size() + 1 + kTokenDigits == kTicketBytes);

}  // namespace

std::string Ticket::random_token() { return net::RunId::random().hex(); }

TicketBytes to_bytes(const Ticket& ticket) {
  std::string words(kTicketMagic);
  words += static_cast<char>(ticket.wish);
  words += ticket.token;
  words.resize(kTicketBytes);
  TicketBytes bytes{};
  std::memcpy(bytes.data(), words.data(), words.size());
  return bytes;
}

std::optional<Ticket> parse_ticket(std::span<const std::byte> bytes) {
  if (bytes.size() != kTicketBytes) return std::nullopt;
  std::string words(bytes.size(), '\0');
  std::memcpy(words.data(), bytes.data(), bytes.size());
  const char wish = words[kTicketMagic.size()];
  if (!words.starts_with(kTicketMagic) || kWishes.find(wish) == std::string_view::npos) {
    return std::nullopt;
  }
  return Ticket{words.substr(kTicketMagic.size() + 1), static_cast<Ticket::Wish>(wish)};
}

}  // namespace strait::reach
