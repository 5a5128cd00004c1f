// Writes the initial corpus of the laboratory's fuzz targets: small valid files, from which libFuzzer makes others.
//
//   make_corpus FOLDER
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace {

void write(const std::filesystem::path& folder, const std::string& name, std::string_view file) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / name, std::ios::binary) << file;
}

void write_libsvm(const std::filesystem::path& folder) {
  int number = 0;
  const auto add = [&](std::string_view file) { write(folder, std::to_string(number++), file); };
  add("+1 1:0.5 7:-2e3\n-1 2:+.25\n");
  add("# head\r\n\r\nspam 1:1 # tail\r\nham\t3:1e-3  4:.5");
  add("1 268435456:1\n1.0 1:1 1:2\n");
  // printf '+1 1:1 3:0.5\n-1 2:1\n' | gzip -9n
  constexpr unsigned char kCompressed[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03,
                                           0xd3, 0x36, 0x54, 0x30, 0xb4, 0x32, 0x54, 0x30, 0xb6, 0x32,
                                           0xd0, 0x33, 0xe5, 0xd2, 0x35, 0x54, 0x30, 0xb2, 0x32, 0xe4,
                                           0x02, 0x00, 0x5c, 0x1b, 0x10, 0xa6, 0x14, 0x00, 0x00, 0x00};
  add({reinterpret_cast<const char*>(kCompressed), sizeof(kCompressed)});
}

void write_metrics(const std::filesystem::path& folder) {
  int number = 0;
  const auto add = [&](std::string_view file) { write(folder, std::to_string(number++), file); };
  add("{\"step\":1,\"loss\":0.5,\"lr\":0.1,\"flags\":0,\"went_dense\":false,\"ns_sift\":5}\n"
      "{\"step\":2,\"loss\":null,\"test_loss\":1e-3,\"total_bytes_up\":12,\"steps\":2}\n");
  add("{\"step\": 1, \"loss\": NaN, \"x\\u0041\": -Infinity, \"note\": \"</script>\"}\r\n{\"step\":");
  add("{\"step\":4}\n{\"step\":4,\"changed\":{\"lr\":{\"from\":[1],\"to\":2}}}\nrubbish\n{\"step\":3,\"loss\":1e999}"
      "\n");
}

void write_images(const std::filesystem::path& folder) {
  using namespace std::string_view_literals;
  const auto add = [&](const char* format, const char* name, std::string_view file) {
    write(folder / format, name, file);
  };
  add("idx", "images", "\0\0\x08\x03\0\0\0\2\0\0\0\1\0\0\0\2abcd"sv);
  add("idx", "labels", "\0\0\x08\x01\0\0\0\3\1\2\3"sv);
  // The labels by gzip -9n.
  constexpr unsigned char kCompressed[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x63,
                                           0x60, 0xe0, 0x60, 0x64, 0x60, 0x60, 0x60, 0x66, 0x64, 0x62, 0x06,
                                           0x00, 0x8b, 0xe5, 0xbd, 0xa4, 0x0b, 0x00, 0x00, 0x00};
  add("idx", "labels_gz", {reinterpret_cast<const char*>(kCompressed), sizeof(kCompressed)});
  const std::string record = '\7' + std::string(3072, 'x');
  add("cifar10", "two_records", record + record);
  add("cifar10", "text",
      "Now is the winter of our discontent made glorious summer by this sun of York; and all the "
      "clouds that lour'd upon our house in the deep bosom of the ocean buried.\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: make_corpus FOLDER\n", stderr);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  write_libsvm(folder / "libsvm");
  write_metrics(folder / "metrics");
  write_images(folder);
  return 0;
}
