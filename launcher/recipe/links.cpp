#include "launcher/recipe/links.h"

#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>

#include "framework/store/input_file.h"
#include "framework/store/store_error.h"
#include "framework/utf8.h"
#include "launcher/base/errors.h"

namespace strait::recipe {
namespace {

constexpr std::size_t kMostLinksBytes = std::size_t{128} << 20;  // of a thousand hosts
constexpr const char* kCsvHeading = "from,to,mbit_per_s,ms";

[[noreturn]] void refuse_links(const std::string& where, const std::string& what) {
  throw base::UserError(base::ExitCode::bad_input, "{}: {}", where, what);
}

std::string position_of(const toml::node& node, const std::string& source) {
  const auto at = node.source().begin;
  return fmt::format("{}:{}:{}", source, at.line, at.column);
}

// One table of a list: reads known keys; finish() refuses others.
class TableFields {
 public:
  TableFields(const toml::table& table, std::string source, std::string kind)
      : table_(table), source_(std::move(source)), kind_(std::move(kind)) {}

  void text(const char* key, std::string& to) {
    known_.emplace_back(key);
    const toml::node* node = table_.get(key);
    if (node == nullptr) {
      refuse_links(position_of(table_, source_), fmt::format("this {} has no {}", kind_, key));
    }
    const auto* value = node->as_string();
    if (value == nullptr || value->get().empty()) {
      refuse_links(position_of(*node, source_), fmt::format("{} must be a host's name", key));
    }
    to = value->get();
  }

  void number(const char* key, double& to, double least, bool required) {
    known_.emplace_back(key);
    const toml::node* node = table_.get(key);
    if (node == nullptr && required) {
      refuse_links(position_of(table_, source_), fmt::format("this {} has no {}", kind_, key));
    }
    if (node == nullptr) return;
    const auto value = node->value<double>();
    if (!node->is_number() || !value || !(*value >= least && *value <= kMostNumber)) {
      refuse_links(position_of(*node, source_),
                   fmt::format("{} must be a number from {} to {}", key, least, kMostNumber));
    }
    to = *value;
  }

  void whole(const char* key, std::int64_t& to) {
    auto value = static_cast<double>(to);
    number(key, value, 1, false);
    to = static_cast<std::int64_t>(value);
  }

  // Numbers of bytes; absent without the key.
  void bytes(const char* key, std::optional<std::vector<std::int64_t>>& to) {
    known_.emplace_back(key);
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    to.emplace();
    const toml::array* list = node->as_array();
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
      to->push_back(list->get(i)->value_exact<std::int64_t>().value_or(0));
    }
    if (list != nullptr && std::ranges::all_of(*to, [](std::int64_t one) { return one > 0; })) {
      return;
    }
    refuse_links(position_of(*node, source_),
                 fmt::format("{} must be a list of bytes, as [85899345920]", key));
  }

  void finish() const {
    for (const auto& [key, value] : table_) {
      const std::string name(key.str());
      if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      refuse_links(position_of(value, source_), fmt::format("a {} has no key {}; it has {}", kind_,
                                                            name, fmt::join(known_, ", ")));
    }
  }

 private:
  static constexpr double kMostNumber = 1e18;

  const toml::table& table_;
  std::string source_;
  std::string kind_;
  std::vector<std::string> known_;
};

void each_table(const toml::node& list, const std::string& source, const std::string& key,
                const std::function<void(TableFields&)>& take) {
  const toml::array* array = list.as_array();
  if (array == nullptr) {
    refuse_links(position_of(list, source),
                 fmt::format("{0} is a list of tables; write [[{0}]]", key));
  }
  for (const toml::node& node : *array) {
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      refuse_links(position_of(node, source), fmt::format("write each as a table, [[{}]]", key));
    }
    TableFields fields(*table, source, key == "hosts" ? "host" : "link");
    take(fields);
    fields.finish();
  }
}

MeasuredHost host_in(TableFields& fields) {
  MeasuredHost host;
  fields.text("name", host.name);
  fields.number("flops_per_second", host.flops_per_second, 1, false);
  fields.number("backward", host.backward, 0.01, false);
  fields.whole("threads", host.threads);
  fields.number("memory_bytes_per_second", host.memory_bytes_per_second, 1, false);
  fields.bytes("gpu_memory", host.gpu_memory);
  return host;
}

MeasuredLink link_in(TableFields& fields) {
  MeasuredLink link;
  fields.text("from", link.from);
  fields.text("to", link.to);
  fields.number("bits_per_second", link.bits_per_second, 1, true);
  fields.number("flows_bits_per_second", link.flows_bits_per_second, 1, false);
  fields.number("seconds", link.seconds, 0, true);
  return link;
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) {
    const auto first = cell.find_first_not_of(" \t\"");
    const auto last = cell.find_last_not_of(" \t\"");
    cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
  }
  return cells;
}

double cell_number(const std::string& cell, double least, const std::string& where,
                   const char* name) {
  double value = 0;
  const char* end = cell.data() + cell.size();
  const auto [stop, error] = std::from_chars(cell.data(), end, value);
  if (error != std::errc{} || stop != end || !(value >= least && value <= 1e12)) {
    refuse_links(where, fmt::format("{} is \"{}\", and must be a number from {}", name,
                                    cell.substr(0, 40), least));
  }
  return value;
}

// ---- writing

// JSON strings are valid basic strings of TOML.
std::string toml_quoted(const std::string& text) { return nlohmann::json(text).dump(); }

std::string toml_field(const char* key, const std::string& value, const std::string& comment) {
  const std::string line = fmt::format("{} = {}", key, value);
  return comment.empty() ? line + "\n" : fmt::format("{:<44} # {}\n", line, comment);
}

// The shortest text of exactly this value; with a point or exponent, else TOML reads an integer.
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
  if (host.gpu_memory) {
    text += toml_field("gpu_memory", fmt::format("[{}]", fmt::join(*host.gpu_memory, ", ")),
                       "bytes of each GPU");
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

const MeasuredHost* LinkTable::host(const std::string& name) const {
  const auto found = std::ranges::find(hosts, name, &MeasuredHost::name);
  return found == hosts.end() ? nullptr : &*found;
}

const MeasuredLink* LinkTable::link(const std::string& from, const std::string& to) const {
  const MeasuredLink* const found = links.find(from, to);
  return found == nullptr ? links.find(to, from) : found;
}

LinkTable read_links(const std::filesystem::path& file) {
  std::string text;
  try {
    text = store::read_text_file(file, kMostLinksBytes);
  } catch (const store::StoreError& error) {
    throw base::UserError(base::ExitCode::bad_input,
                          "hosts.links: {}; strait probe writes such a file", error.what());
  }
  return file.extension() == ".csv" ? parse_links_csv(text, file.string())
                                    : parse_links_toml(text, file.string());
}

LinkTable parse_links_toml(std::string_view text, const std::string& source) {
  if (text.size() > kMostLinksBytes) refuse_links(source, "is larger than any table of links");
  toml::table root;
  try {
    root = toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    const auto at = error.source().begin;
    refuse_links(fmt::format("{}:{}:{}", source, at.line, at.column),
                 fmt::format("not TOML: {}", error.description()));
  }
  LinkTable table;
  std::vector<MeasuredLink> links;
  for (const auto& [key, value] : root) {
    if (key.str() == "hosts") {
      each_table(value, source, "hosts",
                 [&](TableFields& fields) { table.hosts.push_back(host_in(fields)); });
    } else if (key.str() == "links") {
      each_table(value, source, "links",
                 [&](TableFields& fields) { links.push_back(link_in(fields)); });
    } else {
      refuse_links(position_of(value, source),
                   fmt::format("a file of links has no key {}; it has hosts and links", key.str()));
    }
  }
  table.links = std::move(links);
  return table;
}

LinkTable parse_links_csv(std::string_view text, const std::string& source) {
  if (text.size() > kMostLinksBytes) refuse_links(source, "is larger than any table of links");
  std::vector<MeasuredLink> links;
  std::istringstream in{std::string(text)};
  int number = 0;
  bool headed = false;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with('#')) continue;
    const std::string where = fmt::format("{}:{}", source, number);
    if (!is_utf8(line)) refuse_links(where, "this line is not UTF-8");
    const std::vector<std::string> cells = cells_of(line);
    if (!headed) {
      if (fmt::format("{}", fmt::join(cells, ",")) != kCsvHeading) {
        refuse_links(where, fmt::format("the first line must be {}", kCsvHeading));
      }
      headed = true;
      continue;
    }
    if (cells.size() != 4 || cells[0].empty() || cells[1].empty()) {
      refuse_links(where, fmt::format("a line has four cells: {}", kCsvHeading));
    }
    MeasuredLink link;
    link.from = cells[0];
    link.to = cells[1];
    link.bits_per_second = cell_number(cells[2], 1e-6, where, "mbit_per_s") * 1e6;
    link.seconds = cell_number(cells[3], 0, where, "ms") / 1e3;
    links.push_back(std::move(link));
  }
  return {{}, std::move(links)};
}

std::string write_links(const LinkTable& table, const std::string& heading) {
  std::string text =
      "# " + heading +
      "\n# Used by hosts.links = \"this file\" in a recipe; change it as you like.\n";
  for (const MeasuredHost& host : table.hosts) text += host_text(host);
  for (const MeasuredLink& link : table.links) text += link_text(link);
  return text;
}

}  // namespace strait::recipe
