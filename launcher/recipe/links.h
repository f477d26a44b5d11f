#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Measured speeds of hosts and links, and their file.
namespace strait::recipe {

// Measurements of one host; 0: not measured.
struct MeasuredHost {
  std::string name;             // as in the recipe
  double flops_per_second = 0;  // in the forward of a layer
  double backward = 0;          // duration of a backward relative to a forward
  std::int64_t threads = 1;     // used for this measurement
  double memory_bytes_per_second = 0;
  // Share of the time in which its threads waited for cores, because other programs used them; 0
  // where the kernel does not say. Not in the file of links.
  double waited = 0;
  // Bytes of each GPU that its stages can use, one of which computed these; empty: none has.
  std::optional<std::vector<std::int64_t>> gpu_memory = std::nullopt;  // absent: not asked
  bool operator==(const MeasuredHost&) const = default;
};

// Measurements from one host to another. The two directions are separate entries; a single one
// holds for both.
struct MeasuredLink {
  std::string from;  // host, as in the recipe
  std::string to;
  double bits_per_second = 0;        // payload of one connection
  double flows_bits_per_second = 0;  // of parallel connections together; 0: not measured
  double seconds = 0;                // one-way latency
  bool operator==(const MeasuredLink&) const = default;
};

// A list of links that finds the link between two hosts quickly. Copies share it: a plan of a
// thousand hosts has a million links, and is copied for every layout that is compared.
class MeasuredLinks {
 public:
  MeasuredLinks() = default;
  MeasuredLinks(std::vector<MeasuredLink> links);  // NOLINT(google-explicit-constructor)
  MeasuredLinks(std::initializer_list<MeasuredLink> links)
      : MeasuredLinks(std::vector<MeasuredLink>(links)) {}

  const std::vector<MeasuredLink>& list() const;
  auto begin() const { return list().begin(); }
  auto end() const { return list().end(); }
  std::size_t size() const { return list().size(); }
  bool empty() const { return list().empty(); }
  const MeasuredLink& operator[](std::size_t i) const { return list()[i]; }
  // In this direction. Null: none.
  const MeasuredLink* find(const std::string& from, const std::string& to) const;
  // Adds links, in place of those between the same hosts in the same direction.
  void put(const std::vector<MeasuredLink>& newer);
  bool operator==(const MeasuredLinks& other) const { return list() == other.list(); }

 private:
  struct Indexed;
  std::shared_ptr<const Indexed> indexed_;  // null: no links
};

// The file that `hosts.links` names: measured speeds for forecasts.
struct LinkTable {
  std::vector<MeasuredHost> hosts;
  MeasuredLinks links;

  bool empty() const { return hosts.empty() && links.empty(); }
  const MeasuredHost* host(const std::string& name) const;  // null: not measured
  const MeasuredLink* link(const std::string& from, const std::string& to) const;
  bool operator==(const LinkTable&) const = default;
};

// Reads a file that `strait probe` or a user has written: TOML with [[hosts]] and [[links]] tables
// whose keys are the members above, or CSV (*.csv) with the heading "from,to,mbit_per_s,ms" and one
// line per link; ms is the one-way latency. UserError (bad_input) with file, line and what is
// allowed. Safe for hostile input.
LinkTable read_links(const std::filesystem::path& file);

// The same for a text; `source` names it in errors.
LinkTable parse_links_toml(std::string_view text, const std::string& source);
LinkTable parse_links_csv(std::string_view text, const std::string& source);

// The TOML text of a table; read_links() returns an equal table. `heading` is its first comment.
std::string write_links(const LinkTable& table, const std::string& heading);

}  // namespace strait::recipe
