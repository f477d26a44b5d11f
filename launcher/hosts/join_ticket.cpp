#include "launcher/hosts/join_ticket.h"

#include <fcntl.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "framework/fields/json_fields.h"
#include "framework/file_descriptor.h"
#include "launcher/base/launcher_links.h"
#include "launcher/base/messages.h"
#include "launcher/base/read_all.h"
#include "launcher/base/text.h"
#include "launcher/hosts/node_rank.h"

namespace strait::hosts {
namespace {

constexpr const char* kSecret = "STRAIT_JOIN_SECRET";
constexpr const char* kSecretFile = "STRAIT_JOIN_SECRET_FILE";
constexpr std::size_t kMostSecretBytes = 4096;
constexpr std::chrono::seconds kSecretLimit{10};
// A job holds the variables of a host.
constexpr base::MessageLimits kLimits{.frame_bytes = std::size_t{64} << 20,
                                      .text_bytes = std::size_t{48} << 20};
// Either end notices the loss of the other in this time. A host that was only cut off joins again.
constexpr std::chrono::seconds kJoinHold{30};
// A wrong secret shows only in that nothing is ever agreed on.
constexpr std::chrono::seconds kAttemptLimit{10};

using Secret = std::array<std::uint8_t, 32>;

// nullopt: not 64 hexadecimal digits.
std::optional<Secret> parse_secret(std::string_view digits) {
  Secret secret{};
  if (digits.size() != 2 * secret.size()) return std::nullopt;
  for (std::size_t i = 0; i < secret.size(); ++i) {
    const char* const begin = digits.data() + 2 * i;
    const auto [end, error] = std::from_chars(begin, begin + 2, secret.at(i), 16);
    if (error != std::errc() || end != begin + 2) return std::nullopt;
  }
  return secret;
}

std::string text_in(const std::string& name) {
  const FileDescriptor file(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) {
    throw base::UserError(base::ExitCode::bad_input, "cannot read {}, which {} names: {}", name,
                          kSecretFile, std::strerror(errno));
  }
  return base::read_all(file.number(), name, kMostSecretBytes, kSecretLimit);
}

}  // namespace

void describe(auto& f, fields::Is<JoinTicket> auto& m) {
  f("build", m.build), f("run_name", m.run_name), f("host", m.host), f("hosts", m.hosts);
  f("endpoint", m.endpoint), f("launcher_key", m.launcher_key);
  f("public_key", m.keys.public_key), f("secret_key", m.keys.secret_key), f("wait", m.wait);
}
void describe(auto& f, fields::Is<NodeHello> auto& m) {
  f("host_name", m.host_name), f("start", m.start);
}
void describe(auto& f, fields::Is<StartAgent> auto& m) { f("job", m.job); }
void describe(auto& f, fields::Is<RunEnded> auto& m) { f("code", m.code), f("text", m.text); }

constexpr base::TypesOf<JoinMessage> kTypes = {"node_hello", "start_agent", "run_ended"};

net::Frame format(const JoinMessage& message) {
  return base::format_message(message, kTypes, kLimits);
}
JoinMessage parse_join_message(std::span<const std::byte> frame) {
  return base::parse_message<JoinMessage>(frame, kTypes, kLimits);
}

std::string to_text(const JoinTicket& ticket) { return fields::to_object(ticket).dump(); }

JoinTicket parse_join_ticket(const std::string& text) {
  try {
    return fields::from_text<JoinTicket>(text, "run token");
  } catch (const base::MessageError& error) {
    throw base::UserError(base::ExitCode::mismatch, "this is not a run token of this build: {}",
                          error.what());
  }
}

net::LinkOptions join_link(std::uint32_t host, std::uint32_t hosts, net::ProcessName peer,
                           const std::string& peer_key) {
  net::LinkOptions options = base::service_link(
      base::kJoinService, net::ProcessName::host_agent(host), peer, peer_key, kJoinHold);
  options.terms.emplace_back("nodes", std::to_string(hosts));
  if (peer == net::ProcessName::coordinator()) options.connect_limit = kAttemptLimit;
  return options;
}

std::string take_rendezvous_secret() {
  const std::string name = own_variable(kSecretFile);
  std::string text = own_variable(kSecret);
  const std::string source = text.empty() ? name : kSecret;
  if (text.empty() && !name.empty()) text = text_in(name);
  ::unsetenv(kSecret);
  ::unsetenv(kSecretFile);
  text.erase(text.find_last_not_of(" \r\n\t") + 1);
  if (parse_secret(text)) return text;
  const std::string found = source.empty()
                                ? "--rendezvous lacks a secret that all nodes share; give it"
                                : fmt::format("the secret of {} has {}; give one", source,
                                              base::counted(std::ssize(text), "character"));
  throw base::UserError(base::ExitCode::bad_input,
                        "{} of 64 hexadecimal digits, as `openssl rand -hex 32` prints, in {} or "
                        "in a file that {} names",
                        found, kSecret, kSecretFile);
}

net::CurveKeyPair launcher_keys(const std::string& secret) {
  return net::CurveKeyPair::of_secret(parse_secret(secret).value());
}

net::CurveKeyPair node_keys(const std::string& secret, std::uint32_t rank) {
  Secret own = parse_secret(secret).value();
  const std::uint32_t mixed = rank + 1;  // 0 is the launcher
  // In the middle: CURVE ignores the lowest and the highest bits of a secret.
  for (std::size_t i = 0; i < sizeof mixed; ++i) {
    own.at(8 + i) = static_cast<std::uint8_t>(own.at(8 + i) ^ (mixed >> (8 * i)));
  }
  return net::CurveKeyPair::of_secret(own);
}

}  // namespace strait::hosts
