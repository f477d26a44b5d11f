#pragma once

#include <array>
#include <nlohmann/json.hpp>

#include "launcher/recipe/recipe.h"

namespace strait::recipe {

inline constexpr std::int64_t kLongestRow = 1 << 20;  // tokens of a packed row

// With codec.budget the plan chooses these.
inline constexpr std::array kChosenByBudget = {"codec.forward",       "codec.forward_bits",
                                               "codec.first_bits",    "codec.backward",
                                               "codec.backward_bits", "codec.wire_dtype"};

// A value between the text of a recipe (TOML, JSON) and its field.
using RecipeValue = nlohmann::json;

// One key of a recipe: its name, allowed values and field. Reader, writer, error messages and the
// reference page are generated from the list of all keys.
struct RecipeKey {
  std::string name;                       // "train.learning_rate"
  std::string allowed;                    // completes "must be …"
  std::string help;                       // half a sentence for the reference page
  std::vector<std::string_view> choices;  // all allowed texts; empty: other values

  // Sets the field. False, with the recipe unchanged: the value is not allowed.
  std::function<bool(const RecipeValue&, Recipe&)> set;
  // The field in the form that `set` accepts; null: absent.
  std::function<RecipeValue(const Recipe&)> get;
  // Why `set` refuses a value, where `allowed` is not specific enough; empty: it is.
  std::function<std::string(const RecipeValue&)> objection = {};
  // For names of parts, to which plugins add: all current names. `set` accepts any valid name,
  // because a plan can be read before its plugins are loaded; `allowed` and `choices` are empty.
  std::function<std::vector<std::string>()> names = {};
};

// `allowed`, or the current names of parts.
std::string allowed_by(const RecipeKey& key);

// All keys, in the order of the documentation. A key that is a prefix of others (model.lora) is an
// optional table: its value is an object, its members are keys of their own.
const std::vector<RecipeKey>& recipe_keys();

// The key of this name, or nullptr.
const RecipeKey* find_recipe_key(std::string_view name);

// Whether this is the name of a table: "train", "model.lora".
bool is_recipe_section(std::string_view name);

// The part of a name before its last dot ("" for "seed"), and the part after it.
std::string_view section_of(std::string_view name);
std::string_view last_part_of(std::string_view name);

// ---- names of parts

// Kinds of parts that recipes select by name and plugins can add.
enum class PartKind : std::uint8_t { schedule, codec, sync_method };

// Names of this build and of the loaded plugins. Empty until set_part_names() is called.
std::vector<std::string> part_names(PartKind kind);

// Sets the source of the names. This room does not know the rooms with the parts, some of which
// need libtorch, so every program that reads recipes sets it first (plugin::offer_own_parts does).
void set_part_names(std::vector<std::string> (*source)(PartKind));

// The keys that recipe_keys.cpp collects from other sources of this room, in the order of the
// documentation.

std::vector<RecipeKey> host_keys();      // [hosts]
std::vector<RecipeKey> data_keys();      // [data]
std::vector<RecipeKey> simulate_keys();  // [hosts.simulate]; present (`get`) only where set
std::vector<RecipeKey> lora_keys();      // model.lora: present (`get`) only where the recipe has it

// [sync]. Their values are present (`get`) only with several replicas, where the recipe sets
// anything in [sync], and its method reads the key.
std::vector<RecipeKey> sync_keys();

inline constexpr std::size_t kLongestRunName = 100;

// Keys whose values have a form of their own.
namespace special_keys {

RecipeKey run_name();           // name: a valid name of a directory
RecipeKey weights();            // model.weights: "load", "random" or a run
RecipeKey partition();          // pipeline.partition: a name, a plugin or ranges
RecipeKey rows();               // pipeline.rows: "auto", "equal" or a list
RecipeKey betas();              // train.betas: a pair
RecipeKey budget();             // codec.budget: "0.1 %"
RecipeKey first_bits();         // codec.first_bits: 2 to 8, or 16
RecipeKey group();              // codec.group: a power of two
RecipeKey cache();              // codec.cache: a size with its unit
RecipeKey cache_disk();         // codec.cache_disk: a size with its unit
RecipeKey checkpoint_memory();  // checkpoint.memory: a size with its unit
RecipeKey keep_best();          // checkpoint.keep_best: a number, or a flag

}  // namespace special_keys

}  // namespace strait::recipe
