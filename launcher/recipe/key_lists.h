#pragma once

#include <cstddef>
#include <vector>

#include "launcher/recipe/recipe_keys.h"

// The keys that recipe_keys.cpp collects from other sources of this room, in the order of the
// documentation.
namespace strait::recipe {

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
RecipeKey betas();              // train.betas: a pair
RecipeKey first_bits();         // codec.first_bits: 2 to 8, or 16
RecipeKey group();              // codec.group: a power of two
RecipeKey cache();              // codec.cache: a size with its unit
RecipeKey cache_disk();         // codec.cache_disk: a size with its unit
RecipeKey checkpoint_memory();  // checkpoint.memory: a size with its unit

}  // namespace special_keys

}  // namespace strait::recipe
