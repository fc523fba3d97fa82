// SPDX-License-Identifier: Apache-2.0
//
// Files that are written: safetensors, read back by Checkpoint, and files that appear complete or not at all.
// tests/frameworks/transformers_test.py reads the files of tests/decoder/tiny_llama with the package safetensors.
// Read next: src/io/safetensors_writer.cpp, src/io/output_file.cpp.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "regard/error.h"
#include "regard/io/output_file.h"
#include "regard/io/safetensors_writer.h"
#include "support/data_path.h"
#include "support/model_bytes.h"
#include "support/rejection.h"
#include "support/tiny_decoder.h"

namespace regard::safetensors_writer_test {
namespace {

namespace fs = std::filesystem;

std::string contents_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::size_t num_entries(const std::string& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

// A tensor and its elements.
struct Made {
  template <class T>
  Made(std::string name, ElementType type, std::vector<Index> shape, const std::vector<T>& elements)
      : bytes(bytes_of(elements)) {
    tensor = {std::move(name), type, std::move(shape), std::as_bytes(std::span(bytes))};
  }
  Made(const Made&) = delete;
  std::string bytes;
  StoredTensor tensor;
};

TEST(SafetensorsWriter, HeaderIsExactlyThatOfTheFormat) {
  const Made a("a", ElementType::float32, {2, 1}, std::vector<float>{1, 2});
  const Made b("b", ElementType::float64, {}, std::vector<double>{3});
  const std::vector<StoredTensor> tensors{a.tensor, b.tensor};
  const std::string json =
      R"({"__metadata__": {"format": "pt"},"b": {"dtype": "F64","shape": [],"data_offsets": [0,8]},)"
      R"("a": {"dtype": "F32","shape": [2,1],"data_offsets": [8,16]}})";
  const std::size_t padding = (8 - json.size() % 8) % 8;
  const std::vector<SafetensorsMetadata> metadata{{"format", "pt"}};
  EXPECT_EQ(safetensors_header(tensors, metadata), safetensors_bytes(json + std::string(padding, ' '), ""));
}

TEST(SafetensorsWriter, FilesAreReadBackWithTheSameBytes) {
  const TestFolder folder;
  const Made weight("model.layers.0.größe \"<x>\\\" 日本", ElementType::float32, {2, 3},
                    std::vector<float>{1.5f, -0.0f, 1e-42f, 3e38f, 5, 6});
  const Made moment("moment", ElementType::float64, {3}, std::vector<double>{0.1, -1e-310, 1e300});
  const Made empty("empty", ElementType::float32, {0, 4}, std::vector<float>{});
  const Made scalar("scalar", ElementType::int64, {}, std::vector<std::int64_t>{-7});
  const Made small("small", ElementType::uint8, {3}, std::vector<std::uint8_t>{1, 2, 255});
  const Made half("half", ElementType::bfloat16, {1}, std::vector<std::uint16_t>{0x3f80});
  const std::vector<StoredTensor> tensors{small.tensor, weight.tensor, empty.tensor,
                                          half.tensor,  moment.tensor, scalar.tensor};
  write_safetensors(folder / "x.safetensors", tensors, {});
  const Checkpoint checkpoint = Checkpoint::read_file(folder / "x.safetensors");
  ASSERT_EQ(checkpoint.tensors().size(), tensors.size());
  for (const StoredTensor& written : tensors) {
    const StoredTensor* read = checkpoint.find(written.name);
    ASSERT_NE(read, nullptr) << written.name;
    EXPECT_EQ(read->type, written.type);
    EXPECT_EQ(read->shape, written.shape);
    ASSERT_EQ(read->bytes.size(), written.bytes.size());
    EXPECT_TRUE(std::equal(read->bytes.begin(), read->bytes.end(), written.bytes.begin()));
    // Every element is aligned, also in a file that is mapped.
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read->bytes.data()) % static_cast<std::size_t>(type_bytes(read->type)),
              0u);
  }
  EXPECT_EQ(num_entries(folder.path()), 1u);
}

// The files that transformers opens are those that are written today.
TEST(SafetensorsWriter, FolderOfADecoderHasTheCommittedBytes) {
  const TestFolder folder;
  const std::string committed = data_path("decoder/tiny_llama");
  const DecoderConfig config = tiny_llama_config();
  EXPECT_EQ(decoder_config_json(config), contents_of(committed + "/config.json"));
  const std::vector<float> all = tiny_parameters(config);
  const std::vector<SafetensorsMetadata> metadata{{"format", "pt"}};
  write_safetensors(folder / "model.safetensors", stored_parameters(config, all), metadata);
  EXPECT_EQ(contents_of(folder / "model.safetensors"), contents_of(committed + "/model.safetensors"))
      << "written to " << folder.path();
}

TEST(SafetensorsWriter, MemoryHoldsTheBytesOfTheFile) {
  const TestFolder folder;
  const Made a("a", ElementType::float32, {3}, std::vector<float>{1, 2, 3});
  const Made b("b", ElementType::float64, {1}, std::vector<double>{4});
  const std::vector<StoredTensor> tensors{a.tensor, b.tensor};
  write_safetensors(folder / "x", tensors);
  EXPECT_EQ(format_safetensors(tensors), to_bytes(contents_of(folder / "x")));
}

TEST(SafetensorsWriter, AFileWithoutTensorsIsValid) {
  const TestFolder folder;
  write_safetensors(folder / "x", {}, {});
  EXPECT_EQ(contents_of(folder / "x"), safetensors_bytes("{}      ", ""));
  EXPECT_TRUE(Checkpoint::read_file(folder / "x").tensors().empty());
}

TEST(SafetensorsWriter, RejectsWhatTheReaderWouldReject) {
  const TestFolder folder;
  const std::string four_bytes(4, 'x');
  const auto message = [&](const std::vector<std::pair<std::string, std::vector<Index>>>& list) {
    std::vector<StoredTensor> tensors;
    for (const auto& [name, shape] : list) {
      tensors.push_back({name, ElementType::float32, shape, std::as_bytes(std::span(four_bytes))});
    }
    return rejection([&] { write_safetensors(folder / "x", tensors, {}); });
  };
  EXPECT_EQ(message({{"a", {1}}}), "accepted");
  fs::remove(folder / "x");
  const std::string start = "safetensors_header: byte ";
  EXPECT_EQ(message({{"a", {1}}, {"a", {1}}}), start + "66: tensor \"a\" occurs twice, first at byte 9");
  EXPECT_EQ(message({{"", {1}}}), start + "9: the name of a tensor is empty");
  EXPECT_EQ(message({{"a\n", {1}}}), start + "9: the name \"a\\u{a}\" of a tensor contains a control character");
  EXPECT_EQ(message({{"a\xff", {1}}}), "safetensors_header: the name \"a\\x{ff}\" is not valid UTF-8");
  EXPECT_EQ(message({{"a", {2}}}),
            start + "9: tensor \"a\": shape [2] of F32 takes 8 bytes; data_offsets [0, 4] hold 4");
  EXPECT_NE(message({{"a", {-1}}}).find("must be a list of integers"), std::string::npos);
  EXPECT_NE(message({{"a", std::vector<Index>(9, 1)}}).find("has more than 8 axes"), std::string::npos);
  EXPECT_NE(message({{"__metadata__", {1}}}), "accepted");
  EXPECT_EQ(num_entries(folder.path()), 0u);
}

TEST(SafetensorsWriter, AStopLeavesNoFile) {
  const TestFolder folder;
  const Made a("a", ElementType::float32, {2}, std::vector<float>{1, 2});
  std::stop_source source;
  source.request_stop();
  EXPECT_THROW(write_safetensors(folder / "x", {&a.tensor, 1}, {}, source.get_token()), Cancelled);
  EXPECT_EQ(num_entries(folder.path()), 0u);
}

TEST(AtomicFile, AppearsWhenItIsComplete) {
  const TestFolder folder;
  const std::string path = folder.write("x", "before");
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  {
    AtomicFile file(path);
    file.write("after ");
    file.write(std::string(1 << 20, 'y'));
    EXPECT_EQ(contents_of(path), "before");
    file.commit();
  }
  EXPECT_EQ(contents_of(path), "after " + std::string(1 << 20, 'y'));
  struct stat status{};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640u);
  EXPECT_EQ(num_entries(folder.path()), 1u);
}

TEST(AtomicFile, WithoutCommitNothingChanges) {
  const TestFolder folder;
  const std::string path = folder.write("x", "before");
  {
    AtomicFile file(path);
    AtomicFile other(folder / "y");
    file.write("after");
    EXPECT_EQ(num_entries(folder.path()), 3u);
  }
  EXPECT_EQ(contents_of(path), "before");
  EXPECT_EQ(num_entries(folder.path()), 1u);
}

TEST(AtomicFile, ReplacesTheTargetOfALink) {
  const TestFolder folder;
  const std::string target = folder.write("target", "before");
  fs::create_symlink("target", folder / "link");
  AtomicFile file(folder / "link");
  file.write("after");
  file.commit();
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(contents_of(target), "after");
}

TEST(AtomicFile, MessagesNamePathAndReason) {
  const TestFolder folder;
  EXPECT_EQ(rejection<DataError>([&] { AtomicFile(folder / "no/x"); }),
            folder / "no/x" + ": cannot be written: No such file or directory");
  fs::create_directory(folder / "folder");
  EXPECT_EQ(rejection<DataError>([&] { AtomicFile(folder / "folder"); }),
            folder / "folder" + ": is not a regular file; expected the name of a file");
  // A folder takes the name while the file is written.
  EXPECT_EQ(rejection<DataError>([&] {
              AtomicFile file(folder / "y");
              fs::create_directory(folder / "y");
              file.commit();
            }),
            folder / "y" + ": cannot be moved into place: Is a directory");
  EXPECT_EQ(num_entries(folder.path()), 2u);
  EXPECT_EQ(rejection<DataError>([&] { sync_folder(folder / "no"); }),
            folder / "no" + ": cannot be written: No such file or directory");
  EXPECT_FALSE(NewFile::create(folder.write("z", "")));
}

// In a process of its own, because the limit on the size of files cannot be raised again.
TEST(AtomicFile, ForkedProcessWithAFullDiskLeavesNoFile) {
  const TestFolder folder;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(30);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_IGN);
    const std::string message = rejection<DataError>([&] {
      AtomicFile file(folder / "x");
      file.write(std::string(2000, 'x'));
      file.commit();
    });
    ::_exit(message == folder / "x" + ": cannot be written: File too large" ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(num_entries(folder.path()), 0u);
}

}  // namespace
}  // namespace regard::safetensors_writer_test
