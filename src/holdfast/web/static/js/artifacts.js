// Which files of a trial are shown as images, and which are listed. No DOM in here.

const [FEW_IMAGES, MOST_IMAGES, FEW_FILES] = [12, 200, 20];

/** `{images, files, hasMore}`: each file once; few of them, or with `all` as many as a page can hold. */
export function arranged(artifacts, all) {
  const sorted = [...artifacts].sort((a, b) => a.path.localeCompare(b.path, "en", { numeric: true })); // epoch_9 goes before epoch_10
  const images = sorted.filter(({ is_image: is }) => is).slice(0, all ? MOST_IMAGES : FEW_IMAGES);
  const files = sorted.filter((one) => !images.includes(one));
  return { images, files: all ? files : files.slice(0, FEW_FILES), hasMore: files.length > FEW_FILES || files.some(({ is_image: is }) => is) };
}
