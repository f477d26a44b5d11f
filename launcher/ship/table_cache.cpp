#include "launcher/ship/table_cache.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "framework/store/atomic_file.h"
#include "framework/store/file_hash.h"
#include "framework/store/input_file.h"
#include "framework/store/store_error.h"
#include "launcher/ship/file_stamp.h"
#include "launcher/ship/table_text.h"

namespace strait::launcher {
namespace {

namespace fs = std::filesystem;

struct KnownFile {
  std::string path;
  FileStamp stamp;
  FileTable table;
};

std::optional<KnownFile> read_known_file(const fs::path& entry) {
  std::error_code error;
  if (!fs::exists(entry, error)) return std::nullopt;
  try {
    const auto json = nlohmann::json::parse(store::read_text_file(entry, kMostTableText));
    KnownFile known{json.at("path"),
                    {json.at("size"), json.at("inode"), json.at("changed")},
                    table_from_json(json.at("table"))};
    return known;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;  // torn or of another build: as if there were none
  } catch (const store::StoreError&) {
    return std::nullopt;
  }
}

}  // namespace

FileTable TableCache::table(const fs::path& path) const {
  const std::string name = fs::weakly_canonical(path).string();
  const fs::path entry = directory_ / (store::hash_text(name) + ".json");
  const FileStamp before = FileStamp::of(path);
  if (const auto known = read_known_file(entry);
      known && known->path == name && known->stamp == before) {
    return known->table;
  }
  FileTable table = table_of_file(path);
  if (FileStamp::of(path) != before) {
    throw store::StoreError(store::StoreError::Kind::busy,
                            fmt::format("{} was changed while it was read", path.string()));
  }
  store::make_directory(directory_);
  store::replace_file(entry, nlohmann::json{{"path", name},
                                            {"size", before.size},
                                            {"inode", before.inode},
                                            {"changed", before.changed},
                                            {"table", table_to_json(table)}}
                                 .dump());
  return table;
}

}  // namespace strait::launcher
