#include "launcher/recipe/links_writer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace strait::recipe {
namespace {

// A basic string of TOML is one of JSON.
std::string toml_quoted(const std::string& text) { return nlohmann::json(text).dump(); }

std::string toml_field(const char* key, const std::string& value, const std::string& comment) {
  const std::string line = fmt::format("{} = {}", key, value);
  return comment.empty() ? line + "\n" : fmt::format("{:<44} # {}\n", line, comment);
}

// Reads back as it was, and always as a float.
std::string toml_number(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string host_text(const MeasuredHost& host) {
  std::string text = "\n[[hosts]]\n" + toml_field("name", toml_quoted(host.name), "");
  if (host.flops_per_second > 0) {
    text += toml_field(
        "flops_per_second", toml_number(host.flops_per_second),
        fmt::format("{:.1f} Gflop/s of a layer's forward, by", host.flops_per_second / 1e9));
    text += toml_field("threads", std::to_string(host.threads), "");
  }
  if (host.backward > 0) {
    text += toml_field("backward", toml_number(host.backward), "times the forward's time");
  }
  if (host.memory_bytes_per_second > 0) {
    text += toml_field("memory_bytes_per_second", toml_number(host.memory_bytes_per_second),
                       fmt::format("{:.1f} GB/s", host.memory_bytes_per_second / 1e9));
  }
  return text;
}

std::string link_text(const MeasuredLink& link) {
  std::string text = "\n[[links]]\n" + toml_field("from", toml_quoted(link.from), "") +
                     toml_field("to", toml_quoted(link.to), "");
  text += toml_field("bits_per_second", toml_number(link.bits_per_second),
                     fmt::format("{:.1f} Mbit/s, one connection", link.bits_per_second / 1e6));
  if (link.flows_bits_per_second > 0) {
    text += toml_field("flows_bits_per_second", toml_number(link.flows_bits_per_second),
                       fmt::format("{:.1f} Mbit/s, several", link.flows_bits_per_second / 1e6));
  }
  text += toml_field("seconds", toml_number(link.seconds),
                     fmt::format("{:.2f} ms, one way", link.seconds * 1e3));
  return text;
}

}  // namespace

std::string write_links(const LinkTable& table, const std::string& heading) {
  std::string text =
      "# " + heading +
      "\n# Used by hosts.links = \"this file\" in a recipe; change it as you like.\n";
  for (const MeasuredHost& host : table.hosts) text += host_text(host);
  for (const MeasuredLink& link : table.links) text += link_text(link);
  return text;
}

}  // namespace strait::recipe
